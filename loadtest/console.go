package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	consoleScript   = "console/web/test/limits.mjs"
	consoleHerd     = 120_000
	consoleWorkflow = "herd"
	consoleFirst    = 1_000 // ms, from a click to the first content of a page, p95
	consoleFilter   = 300   // ms, from a key to the rows, p95
	consoleHeap     = 100   // MB of the tab's JavaScript, at any time
	consoleBatch    = 100   // ticks in a request to the endpoint
	storedPerSecond = 1_500 // schedules, at the least
)

// consoled drives the console in Chromium over many schedules and ticks: how soon its pages and its filter answer, and how much memory
// the tail of a herd needs. It needs Node, and the packages of console/web (npm ci --ignore-scripts). CHROMIUM names another browser.
func consoled(ctx context.Context, o options, p *progress) (*report, error) {
	if _, err := os.Stat(consoleScript); err != nil {
		return nil, fmt.Errorf("run it in the root of the repository: %w", err)
	}
	return operatedBy(ctx, o, p,
		func(op *operated, ctx context.Context) error { return op.look(ctx, "pages") },
		func(op *operated, ctx context.Context) error { return op.tailHerd(ctx, o.scaled(consoleHerd)) })
}

// tailHerd stores schedules that fire together, and follows them in the tail of the console until all have ended.
func (op *operated) tailHerd(ctx context.Context, n int) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it returns when it is closed
	}()
	defer func() {
		_ = server.Close()
		<-done
	}()
	if _, err := op.sdk.Endpoints.Put(ctx, consoleWorkflow, carillon.EndpointParams{URL: "http://" + listener.Addr().String(), Batch: consoleBatch}); err != nil {
		return err
	}
	if _, err := op.sdk.Workflows.Put(ctx, consoleWorkflow, carillon.WorkflowParams{Endpoint: consoleWorkflow}); err != nil {
		return err
	}
	due := time.Now().Truncate(time.Second).Add(time.Minute + time.Duration(n/storedPerSecond)*time.Second)
	sum, err := op.sdk.Schedules.PutAll(ctx, func(yield func(carillon.BulkLine) bool) {
		for i := range n {
			line := carillon.BulkLine{Workflow: consoleWorkflow, Key: fmt.Sprintf("herd_%07d", i)}
			line.Spec, line.Payload = carillon.At(due), payloadFor(i, 1)
			if !yield(line) {
				return
			}
		}
	}, carillon.BulkParams{})
	if err == nil && sum.Inserted != n {
		err = fmt.Errorf("got %+v", sum)
	}
	if err != nil {
		return fmt.Errorf("store the herd: %w", err)
	}
	if left := time.Until(due); left < 20*time.Second {
		return fmt.Errorf("the herd was stored only %v before it is due: the machine is too slow", left)
	}
	op.p.say("%d schedules fire together at %s", n, due.UTC().Format(time.RFC3339))
	if err := op.look(ctx, "tail", "HERD_AT="+due.UTC().Format(time.RFC3339), "HERD="+strconv.Itoa(n)); err != nil {
		return err
	}
	var ended int
	if err := op.db.QueryRow(ctx, `
		SELECT count(*) FROM tick t JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id
		WHERE s.workflow = $1 AND t.ended_at IS NOT NULL`, consoleWorkflow).Scan(&ended); err != nil {
		return err
	}
	op.r.figure("herd_ended", float64(ended))
	return nil
}

// look runs a part of the script in Chromium and notes what it measured.
func (op *operated) look(ctx context.Context, part string, env ...string) error {
	cmd := exec.CommandContext(ctx, "node", consoleScript, part)
	cmd.Env = append(os.Environ(), append(env, "CARILLON_URL="+op.URL, "CARILLON_TOKEN="+op.Token, "STORED="+strconv.Itoa(op.stored))...)
	cmd.Stderr = op.p.out
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start Node: %w", err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m struct {
			Name   string
			Values []float64
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			op.p.say("%s", lines.Text())
			continue
		}
		op.noteLook(m.Name, m.Values)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s %s: %w (are the packages of console/web installed? npm ci --ignore-scripts)", consoleScript, part, err)
	}
	return lines.Err()
}

// noteLook notes the figures and the promise of one thing that the browser measured: milliseconds, or megabytes of the heap.
func (op *operated) noteLook(name string, values []float64) {
	took := make([]time.Duration, len(values)) // percentile takes durations; a value is as many of their milliseconds
	for i, v := range values {
		took[i] = time.Duration(v * float64(time.Millisecond))
	}
	at := func(part float64) float64 { return milliseconds(percentile(took, part)) }
	switch name {
	case "tail_heap_mb":
		op.r.figure("tail_heap_samples", float64(len(values)))
		op.r.figure("tail_heap_p50_mb", at(0.5))
		op.r.atMost("tail_heap_most_mb", at(1), consoleHeap)
	case "tail_seen":
		op.r.atLeast(name, at(1), 1)
	case "filter":
		op.r.figure("filter_p50_ms", at(0.5))
		op.r.atMost("filter_p95_ms", at(0.95), consoleFilter)
	default:
		op.r.figure(name+"_p50_ms", at(0.5))
		op.r.atMost(name+"_p95_ms", at(0.95), consoleFirst)
	}
}
