package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

const (
	bytesSchedules = 1000
	bytesPayload   = 65_000 // below the default quota
	bytesFinishes  = 100    // at a time
	bytesLists     = 20
	bytesFor       = time.Minute
	bytesPause     = 200 * time.Millisecond // after an answer of 429 or 503
	bytesMemory    = 1024                   // MiB
	bytesSlower    = 2                      // times
)

// inFlight lets a tenant with default quotas send and read as many bytes as it may. It measures the memory of the process, and how
// long another tenant waits.
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
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	a := asking{httpClient(transport), []string{"http://" + server.Listen}}
	tokens, err := w.twoTenants(ctx, a)
	if err != nil {
		return nil, err
	}
	length := max(4*time.Second, time.Duration(float64(bytesFor)*min(1, o.scale)))
	l := loaded{a, w, server.cmd.Process.Pid, tokens, length}
	r := &report{}
	return r, l.measure(ctx, r, p)
}

// loaded is one process to which one tenant sends and from which it reads many bytes, while another reads little.
type loaded struct {
	asking
	bench  *bench
	pid    int
	tokens map[string]string
	length time.Duration // of each measurement
}

// measure measures the process's memory, and the modest tenant's waiting alone, beside the greedy tenant, and beside processes that
// use as much CPU as that.
func (l loaded) measure(ctx context.Context, r *report, p *progress) error {
	if _, err := l.steadily(ctx, l.tokens["modest"], quotaOther, 2*time.Second); err != nil { // statements are prepared and caches filled
		return err
	}
	before, err := peakMemory(l.pid)
	if err != nil {
		return err
	}
	p.say("storing %d schedules with large payloads", bytesSchedules)
	if err := l.storeLarge(ctx, l.tokens["greedy"]); err != nil {
		return err
	}
	p.say("one tenant alone")
	alone, err := l.steadily(ctx, l.tokens["modest"], quotaOther, l.length)
	if err != nil {
		return err
	}
	p.say("beside one that sends and asks for many bytes")
	beside, statuses, cpu, err := l.besideBytes(ctx)
	if err != nil {
		return err
	}
	peak, err := peakMemory(l.pid)
	if err != nil {
		return err
	}
	p.say("beside processes that burn %.0f s of CPU", cpu.Seconds())
	burned, err := l.besideBurners(ctx, cpu)
	if err != nil {
		return err
	}
	r.figure("memory_before_mib", before)
	r.figure("cpu_seconds", cpu.Seconds())
	for status, n := range statuses {
		r.figure(fmt.Sprint("greedy_answers_", status), float64(n))
	}
	for name, one := range map[string]asked{"alone": alone, "beside": beside, "burner": burned} {
		r.figure("other_p50_"+name+"_ms", milliseconds(percentile(one.took, 0.5)))
		r.figure("other_p99_"+name+"_ms", milliseconds(percentile(one.took, 0.99)))
	}
	r.atMost("memory_peak_mib", peak, bytesMemory)
	r.atMost("other_not_answered", float64(beside.odd+beside.refused), 0)
	r.atMost("other_p99_times_burner", float64(percentile(beside.took, 0.99))/float64(max(1, percentile(burned.took, 0.99))), bytesSlower)
	return nil
}

// twoTenants creates two tenants with default quotas, and a schedule of the modest one. It returns their tokens by their names.
func (b *bench) twoTenants(ctx context.Context, a asking) (tokens map[string]string, err error) {
	tokens = map[string]string{}
	for _, name := range []string{"greedy", "modest"} {
		if tokens[name], err = b.newTenant(ctx, a, name, `{}`); err != nil {
			return nil, err
		}
	}
	return tokens, a.putSchedule(ctx, tokens["modest"])
}

// storeLarge stores many schedules, each with a payload of almost the largest size.
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

// send sends a request with any body, reads the answer to its end and calls answered with its status.
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
		return answered(0) // the server refused it before the end of the body, and the connection may end before the answer is read
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return answered(0)
	}
	return answered(answer.StatusCode)
}

// besideBytes measures the modest tenant's waiting while the greedy one sends large bodies and reads large lists. The greedy client is a
// process of its own, so that the modest one does not wait for it. It returns also how many of the greedy tenant's requests got each
// status, and how much CPU the server, PostgreSQL and the greedy client used.
func (l loaded) besideBytes(ctx context.Context) (modest asked, statuses map[int]int, cpu time.Duration, err error) {
	began, err := costUntilNow(ctx, l.bench.db, l.pid)
	if err != nil {
		return modest, nil, 0, err
	}
	greedy, err := l.startGreedy(ctx)
	if err != nil {
		return modest, nil, 0, err
	}
	modest, err = l.steadily(ctx, l.tokens["modest"], quotaOther, l.length)
	statuses, client, ended := greedy()
	if err := errors.Join(err, ended); err != nil {
		return modest, nil, 0, err
	}
	now, err := costUntilNow(ctx, l.bench.db, l.pid)
	used := now.less(began)
	return modest, statuses, used.ours + used.postgres + client, err
}

const greedyCommand = "greedy"

// startGreedy starts the greedy client. wait waits for its end, and returns the statuses of its requests and the CPU that it used.
func (l loaded) startGreedy(ctx context.Context) (wait func() (map[int]int, time.Duration, error), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, self, greedyCommand, l.urls[0], l.length.String())
	cmd.Env = append(os.Environ(), "CARILLON_TOKEN="+l.tokens["greedy"])
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() (statuses map[int]int, cpu time.Duration, err error) {
		if err := cmd.Wait(); err != nil {
			return nil, 0, fmt.Errorf("the greedy client: %w", err)
		}
		err = json.Unmarshal(out.Bytes(), &statuses)
		return statuses, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), err
	}, nil
}

// greedyClient is the command that startGreedy runs.
func greedyClient() *cobra.Command {
	return &cobra.Command{
		Use:    greedyCommand + " URL DURATION",
		Short:  "Send large bodies and read large lists, for the scenario bytes",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			length, err := time.ParseDuration(args[1])
			if err != nil {
				return err
			}
			transport := manyConnections()
			defer transport.CloseIdleConnections()
			statuses, err := asking{httpClient(transport), args[:1]}.manyBytes(cmd.Context(), os.Getenv("CARILLON_TOKEN"), length)
			if err != nil {
				return err
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(statuses)
		},
	}
}

// manyBytes sends large bodies and reads large lists for a tenant, many at a time, and counts the statuses.
func (a asking) manyBytes(ctx context.Context, token string, length time.Duration) (statuses map[int]int, err error) {
	body, err := largeFinish()
	if err != nil {
		return nil, err
	}
	ends := time.Now().Add(length)
	statuses = map[int]int{}
	var mu sync.Mutex
	answered := func(status int) error {
		mu.Lock()
		statuses[status]++
		mu.Unlock()
		if status != http.StatusOK {
			time.Sleep(bytesPause)
		}
		return nil
	}
	all, within := errgroup.WithContext(ctx)
	for range bytesFinishes {
		all.Go(func() (err error) {
			for err == nil && time.Now().Before(ends) {
				header := map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"}
				err = a.send(within, "/v1/ticks/finish", token, bytes.NewReader(body), header, answered)
			}
			return err
		})
	}
	for range bytesLists {
		all.Go(func() (err error) {
			for err == nil && time.Now().Before(ends) {
				err = a.send(within, "/v1/schedules?limit=1000", token, nil, nil, answered)
			}
			return err
		})
	}
	return statuses, all.Wait()
}

// besideBurners measures the modest tenant's waiting beside processes that use so much CPU.
func (l loaded) besideBurners(ctx context.Context, cpu time.Duration) (asked, error) {
	stop, err := burn(ctx, cpu, l.length)
	if err != nil {
		return asked{}, err
	}
	defer stop()
	return l.steadily(ctx, l.tokens["modest"], quotaOther, l.length)
}

// largeFinish returns a compressed body that expands to almost the largest size.
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

// burn starts processes that together use so much CPU within length. stop ends them.
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
