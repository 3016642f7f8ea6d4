package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	bytesSchedules = 1000
	bytesPayload   = 65_000 // below the default quota
	bytesFinishes  = 100    // at a time
	bytesLists     = 20
	bytesFor       = 20 * time.Second
	bytesPause     = 200 * time.Millisecond // after an answer of 429 or 503
	bytesMemory    = 1024                   // MiB
	bytesSlower    = 2                      // times
)

// inFlight lets a tenant with default quotas send as many bytes, and ask for as many, as it may: what memory the process takes,
// and how long another tenant waits, alone, beside that and beside processes that burn as much CPU.
func inFlight(ctx context.Context, o options, p *progress) (_ *report, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	w, err := openBench(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer w.close()
	server, err := w.serve(ctx, "one", w.env, "--role", "api")
	if err != nil {
		return nil, err
	}
	defer server.stop()
	pid := server.cmd.Process.Pid
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	a := asking{httpClient(transport), []string{"http://" + server.listen}}
	tokens, err := w.twoTenants(ctx, a)
	if err != nil {
		return nil, err
	}
	length := max(4*time.Second, time.Duration(float64(bytesFor)*min(1, o.scale)))
	if _, err := a.steadily(ctx, tokens["modest"], quotaOther, 2*time.Second); err != nil { // plans are made and caches filled
		return nil, err
	}
	r := &report{}
	before, err := peakMemory(pid)
	if err != nil {
		return nil, err
	}
	p.say("storing %d schedules with large payloads", bytesSchedules)
	if err := a.storeLarge(ctx, tokens["greedy"]); err != nil {
		return nil, err
	}
	p.say("one tenant alone")
	alone, err := a.steadily(ctx, tokens["modest"], quotaOther, length)
	if err != nil {
		return nil, err
	}
	p.say("beside one that sends and asks for many bytes")
	began, err := costUntilNow(ctx, w.db, pid)
	if err != nil {
		return nil, err
	}
	var beside asked
	statuses, err := a.besideBytes(ctx, tokens, length, &beside)
	if err != nil {
		return nil, err
	}
	ended, err := costUntilNow(ctx, w.db, pid)
	if err != nil {
		return nil, err
	}
	peak, err := peakMemory(pid)
	if err != nil {
		return nil, err
	}
	used := ended.less(began)
	cpu := used.ours + used.postgres
	p.say("beside processes that burn %.0f s of CPU", cpu.Seconds())
	stop, err := burn(ctx, cpu, length)
	if err != nil {
		return nil, err
	}
	burned, err := a.steadily(ctx, tokens["modest"], quotaOther, length)
	stop()
	if err != nil {
		return nil, err
	}
	r.figure("memory_before_mib", before)
	r.figure("cpu_seconds", cpu.Seconds())
	for status, n := range statuses {
		r.figure(fmt.Sprint("greedy_answers_", status), float64(n))
	}
	for name, one := range map[string]*asked{"alone": &alone, "beside": &beside, "burner": &burned} {
		r.figure("other_p50_"+name+"_ms", milliseconds(percentile(one.took, 0.5)))
		r.figure("other_p99_"+name+"_ms", milliseconds(percentile(one.took, 0.99)))
	}
	r.atMost("memory_peak_mib", peak, bytesMemory)
	r.atMost("other_not_answered", float64(beside.odd+beside.refused), 0)
	r.atMost("other_p99_times_burner", float64(percentile(beside.took, 0.99))/float64(max(1, percentile(burned.took, 0.99))), bytesSlower)
	return r, nil
}

// twoTenants makes tenants with default quotas, and a schedule of the one that asks little.
func (b *bench) twoTenants(ctx context.Context, a asking) (tokens map[string]string, err error) {
	platform, err := b.output(ctx, b.env, "token", "--scope", "platform:admin")
	if err != nil {
		return nil, err
	}
	tokens = map[string]string{}
	for _, name := range []string{"greedy", "modest"} {
		if status, _, err := a.ask(ctx, 0, http.MethodPut, "/v1/platform/tenants/"+name, platform, `{}`); err != nil || status != http.StatusCreated {
			return nil, fmt.Errorf("make tenant %s: %d, %w", name, status, err)
		}
		if tokens[name], err = b.output(ctx, b.env, "token", "--tenant", name); err != nil {
			return nil, err
		}
	}
	if status, _, err := a.ask(ctx, 0, http.MethodPut, quotaPath, tokens["modest"], `{"spec": {"cron": "0 8 * * *"}}`); err != nil || status != http.StatusCreated {
		return nil, fmt.Errorf("put a schedule: %d, %w", status, err)
	}
	return tokens, nil
}

func (a asking) storeLarge(ctx context.Context, token string) error {
	payload := strings.Repeat("x", bytesPayload)
	lines, out := io.Pipe()
	go func() {
		for i := range bytesSchedules {
			fmt.Fprintf(out, `{"workflow": "w", "key": "k%d", "spec": {"cron": "0 8 * * *"}, "payload": %q}`+"\n", i, payload)
		}
		_ = out.Close() // it never fails
	}()
	return a.send(ctx, "/v1/schedules/bulk", token, lines, map[string]string{"Content-Type": "application/x-ndjson"}, func(status int) error {
		if status != http.StatusOK {
			return fmt.Errorf("store large schedules: %d", status)
		}
		return nil
	})
}

// send sends a request with any body, and reads the answer over.
func (a asking) send(ctx context.Context, path, token string, body io.Reader, header map[string]string, answered func(status int) error) error {
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	request, err := http.NewRequestWithContext(ctx, method, a.urls[0]+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	for name, value := range header {
		request.Header.Set(name, value)
	}
	answer, err := a.client.Do(request)
	if err != nil {
		return answered(0) // refused before it was sent whole: the connection may end before the answer is read
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return answered(0)
	}
	return answered(answer.StatusCode)
}

// besideBytes asks steadily for one tenant while another sends large bodies and reads large lists.
func (a asking) besideBytes(ctx context.Context, tokens map[string]string, length time.Duration, beside *asked) (statuses map[int]int, err error) {
	body, err := largeFinish()
	if err != nil {
		return nil, err
	}
	ends := time.Now().Add(length)
	statuses = map[int]int{}
	counts := make(chan int)
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for status := range counts {
			statuses[status]++
		}
	}()
	again := func(status int) error {
		counts <- status
		if status != http.StatusOK {
			time.Sleep(bytesPause)
		}
		return nil
	}
	all, within := errgroup.WithContext(ctx)
	all.Go(func() (err error) {
		*beside, err = a.steadily(within, tokens["modest"], quotaOther, length)
		return err
	})
	for range bytesFinishes {
		all.Go(func() (err error) {
			for err == nil && time.Now().Before(ends) {
				err = a.send(within, "/v1/ticks/finish", tokens["greedy"], bytes.NewReader(body), map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}, again)
			}
			return err
		})
	}
	for range bytesLists {
		all.Go(func() (err error) {
			for err == nil && time.Now().Before(ends) {
				err = a.send(within, "/v1/schedules?limit=1000", tokens["greedy"], nil, nil, again)
			}
			return err
		})
	}
	err = all.Wait()
	close(counts)
	<-counted
	return statuses, err
}

// largeFinish is a packed body that unpacks to almost as much as may be.
func largeFinish() ([]byte, error) {
	var plain, packed bytes.Buffer
	plain.WriteString(`{"ticks": [`)
	for i := range 120 {
		words := make([]byte, 100)
		rand.Read(words) // it never fails
		if i > 0 {
			plain.WriteByte(',')
		}
		fmt.Fprintf(&plain, `{"tick_id": "tick_%d", "lease_token": "t", "outcome": "complete", "result": %q}`, i, strings.Repeat(hex.EncodeToString(words), 325))
	}
	plain.WriteString(`]}`)
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain.Bytes()); err != nil {
		return nil, err
	}
	err := z.Close()
	return packed.Bytes(), err
}

// burn starts processes that use so much CPU together within a time. What it returns ends them.
func burn(ctx context.Context, cpu, length time.Duration) (stop func(), err error) {
	n := max(1, int(math.Ceil(cpu.Seconds()/length.Seconds())))
	each := max(1, int(cpu.Seconds())/n)
	var burners []*exec.Cmd
	stop = func() {
		for _, one := range burners {
			_ = one.Process.Kill() // one that has ended needs none
			_ = one.Wait()
		}
	}
	for range n {
		one := exec.CommandContext(ctx, "sh", "-c", fmt.Sprintf("ulimit -t %d; while :; do :; done", each))
		if err := one.Start(); err != nil {
			stop()
			return nil, err
		}
		burners = append(burners, one)
	}
	return stop, nil
}
