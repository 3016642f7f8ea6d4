package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	upsertSchedules = 200_000
	upsertTimings   = 100
	memoryLimit     = 200 // MiB
)

// upsert puts the same schedules in bulk four times: fresh, unchanged, with another payload, and with another timing. It compares
// each with a raw COPY of all rows that the first put made: schedules, their states, memberships and labels. The COPY goes into
// tables with the same columns, constraints and indexes, in the same server and as durable. Rows and lines are encoded before the
// clock starts.
func upsert(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	server, at, end, err := openDev(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer end()
	transport := manyConnections()
	defer transport.CloseIdleConnections()

	n := o.scaled(upsertSchedules)
	u := upserts{httpClient(transport), at, n, p}
	fresh, err := u.put(ctx, "fresh", 1, 8, carillon.BulkSummary{Inserted: n})
	if err != nil {
		return nil, err
	}
	raw, err := rawCopy(ctx, at.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("raw COPY: %w", err)
	}
	p.say("raw COPY: %.1f s", raw.Seconds())
	unchanged, err := u.put(ctx, "unchanged", 1, 8, carillon.BulkSummary{Unchanged: n})
	if err != nil {
		return nil, err
	}
	changed, err := u.put(ctx, "all changed", 2, 8, carillon.BulkSummary{Updated: n})
	if err != nil {
		return nil, err
	}
	retimed, err := u.put(ctx, "all retimed", 2, 9, carillon.BulkSummary{Updated: n})
	if err != nil {
		return nil, err
	}
	peak, err := peakMemory(server.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}

	r := &report{}
	r.figure("schedules", float64(n))
	r.figure("raw_copy_per_second", float64(n)/raw.Seconds())
	for _, one := range []struct {
		name string
		took time.Duration
	}{{"fresh", fresh}, {"unchanged", unchanged}, {"all_changed", changed}, {"all_retimed", retimed}} {
		r.figure(one.name+"_per_second", float64(n)/one.took.Seconds())
		r.figure(one.name+"_ratio", raw.Seconds()/one.took.Seconds())
	}
	r.atMost("fresh_times_raw_copy", fresh.Seconds()/raw.Seconds(), 2)
	r.atMost("unchanged_times_raw_copy", unchanged.Seconds()/raw.Seconds(), 2)
	r.atMost("all_changed_times_raw_copy", changed.Seconds()/raw.Seconds(), 4)
	r.atMost("server_memory_mib", peak, memoryLimit)
	return r, nil
}

// upserts puts the same n schedules in bulk, several times.
type upserts struct {
	client *http.Client
	at     announcement
	n      int
	p      *progress
}

// put sends the schedules in one request, with a version in their payloads and an hour in their timings. It returns how long the
// answer took, which must be want.
func (u upserts) put(ctx context.Context, what string, version, hour int, want carillon.BulkSummary) (took time.Duration, err error) {
	body, err := encoded(upsertLines(u.n, version, hour))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	sum, err := sendBulk(ctx, u.client, u.at, "/v1/schedules/bulk", body)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if sum != want {
		return 0, fmt.Errorf("%s: got %+v, want %+v", what, sum, want)
	}
	took = time.Since(began)
	u.p.say("%s: %d in %.1f s", what, u.n, took.Seconds())
	return took, nil
}

// upsertLines returns n schedules of users, which fire at one of a hundred times after hour. The version is in their payload.
func upsertLines(n, version, hour int) iter.Seq[carillon.BulkLine] {
	return func(yield func(carillon.BulkLine) bool) {
		for i := range n {
			line := carillon.BulkLine{Workflow: "digest", Key: fmt.Sprintf("user_%07d", i)}
			minute := i % upsertTimings
			line.Spec = carillon.Spec{Timezone: "America/New_York", Cron: carillon.Strings{fmt.Sprintf("%d %d * * *", minute%60, hour+minute/60)}}
			line.Payload = map[string]any{"user": i, "template": "daily-digest", "version": version, "address": fmt.Sprintf("user_%07d@example.com", i)}
			line.Labels = map[string]string{"plan": "pro"}
			if !yield(line) {
				return
			}
		}
	}
}

// encoded returns lines as the body of a request.
func encoded(lines iter.Seq[carillon.BulkLine]) ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	for line := range lines {
		text, err := json.Marshal(struct {
			carillon.BulkLine
			Payload any `json:"payload"`
		}{line, line.Payload})
		if err != nil {
			return nil, err
		}
		if err := enc.Encode(json.RawMessage(text)); err != nil {
			return nil, err
		}
	}
	return body.Bytes(), nil
}

// sendBulk sends lines to a path, and returns the summary that ends the answer.
func sendBulk(ctx context.Context, client *http.Client, at announcement, path string, body []byte) (sum carillon.BulkSummary, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.URL+path, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return sum, err
	}
	request.Header.Set("Authorization", "Bearer "+at.Token)
	request.Header.Set("Content-Type", "application/x-ndjson")
	answer, err := client.Do(request)
	if err != nil {
		return sum, err
	}
	defer answer.Body.Close()
	var last []byte
	results := 0
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); results++ {
		last = append(last[:0], lines.Bytes()...)
	}
	var end struct{ Summary *carillon.BulkSummary }
	if err := json.Unmarshal(last, &end); err != nil || end.Summary == nil {
		return sum, fmt.Errorf("%s: the answer has no summary after %d lines: %.300s", answer.Status, results, last)
	}
	return *end.Summary, nil
}

// manyConnections returns a transport that keeps an idle connection for each client.
func manyConnections() *http.Transport {
	return &http.Transport{MaxIdleConns: 100, MaxIdleConnsPerHost: 100}
}

func httpClient(t *http.Transport) *http.Client { return &http.Client{Transport: t} }

func jsonText(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// rawCopy returns how long COPY takes to load the rows of the tables into copies of these tables.
func rawCopy(ctx context.Context, url string) (took time.Duration, err error) {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer db.Close(ctx)
	for _, table := range []string{"schedule", "schedule_state", "member", "label"} {
		if _, err := db.Exec(ctx, `CREATE TABLE raw_`+table+` (LIKE `+table+` INCLUDING ALL)`); err != nil {
			return 0, err
		}
		if table == "schedule" {
			if _, err := db.Exec(ctx, `ALTER TABLE raw_schedule ADD FOREIGN KEY (tenant_id) REFERENCES tenant`); err != nil {
				return 0, err
			}
		}
		var rows bytes.Buffer
		if _, err := db.PgConn().CopyTo(ctx, &rows, `COPY `+table+` TO STDOUT (FORMAT binary)`); err != nil {
			return 0, err
		}
		began := time.Now()
		if _, err := db.PgConn().CopyFrom(ctx, &rows, `COPY raw_`+table+` FROM STDIN (FORMAT binary)`); err != nil {
			return 0, err
		}
		took += time.Since(began)
		if _, err := db.Exec(ctx, `DROP TABLE raw_`+table); err != nil {
			return 0, err
		}
	}
	return took, nil
}

// peakMemory returns the largest resident memory of a process so far, in MiB.
func peakMemory(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kilobytes / 1024, err
		}
	}
	return 0, fmt.Errorf("the status of process %d does not tell its peak memory", pid)
}
