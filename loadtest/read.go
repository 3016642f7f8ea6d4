package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	readSchedules = 5_000_000
	readTemplates = 2_000 // schedules that are put through the API, and then copied
	readWorkflows = 10
	readRate      = 50 // requests a second
	readFor       = 60 * time.Second
	readWithin    = 20 // ms, p99
)

// read loads many schedules, and then reads some of them at a steady rate, even if earlier answers are late.
func read(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	url, stop, err := database(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer stop()
	o.databaseURL = url
	_, at, end, err := openDev(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer end()
	n := o.scaled(readSchedules)
	began := time.Now()
	if err := fill(ctx, at, n, readWorkflow, p); err != nil {
		return nil, fmt.Errorf("load schedules: %w", err)
	}
	loaded := time.Since(began)
	p.say("%d schedules stored", n)

	transport := manyConnections()
	defer transport.CloseIdleConnections()
	asker := &asker{announcement: at, client: httpClient(transport), questions: questions, stored: n, took: map[string][]time.Duration{}}
	if err := asker.run(ctx, readRate, 5*time.Second); err != nil { // statements are prepared and caches filled
		return nil, err
	}
	clear(asker.took)
	if err := asker.run(ctx, readRate, readFor); err != nil {
		return nil, err
	}
	r := &report{}
	r.figure("schedules", float64(n))
	r.figure("load_seconds", loaded.Seconds())
	r.figure("requests_per_second", readRate)
	for _, q := range questions {
		took := asker.took[q.name]
		r.figure(q.name+"_p50_ms", milliseconds(percentile(took, 0.5)))
		r.atMost(q.name+"_p99_ms", milliseconds(percentile(took, 0.99)), readWithin)
	}
	return r, nil
}

// question is a kind of request. Its functions take the number of a stored schedule.
type question struct {
	name     string
	path     func(i int) string
	body     string // of a POST
	sparse   bool   // a page may be empty, with a cursor
	platform bool   // with the token of the platform's operator
}

var questions = []question{
	{name: "get", path: func(i int) string { return readPath(i) }},
	{name: "upcoming", path: func(i int) string { return readPath(i) + "/upcoming?count=10" }},
	{name: "preview", path: func(int) string { return "/v1/schedules/preview" }, body: `{"spec":{"cron":"30 8 * * 1-5","timezone":"America/New_York"},"count":10}`},
	{name: "list", path: func(int) string { return "/v1/schedules" }},
	{name: "list_workflow", path: func(i int) string { return "/v1/schedules?workflow=" + readWorkflow(i) }},
	{name: "list_status", path: func(i int) string { return "/v1/schedules?status=active&workflow=" + readWorkflow(i) }},
	{name: "list_key_prefix", path: func(i int) string {
		return "/v1/schedules?workflow=" + readWorkflow(i) + "&key_prefix=" + readKey(i)[:10]
	}},
	{name: "list_label", path: func(i int) string { return "/v1/schedules?label=" + url.QueryEscape(fmt.Sprint("plan:", i%100)) }},
	{name: "list_due_before", path: func(i int) string {
		return "/v1/schedules?due_before=" + time.Now().UTC().Add(time.Duration(i%24+1)*time.Hour).Format(time.RFC3339)
	}},
}

func readKey(i int) string      { return fmt.Sprintf("user_%08d", i) }
func readWorkflow(i int) string { return fmt.Sprint("digest-", i%readWorkflows) }
func readPath(i int) string {
	return "/v1/workflows/" + readWorkflow(i) + "/schedules/" + readKey(i)
}

// asker sends the kinds of requests in turn.
type asker struct {
	announcement
	client    *http.Client
	questions []question
	stored    int

	mu   sync.Mutex
	took map[string][]time.Duration // from the planned moment of each request
}

// run sends requests at a rate. It does not wait for late answers.
func (a *asker) run(ctx context.Context, perSecond int, length time.Duration) error {
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for k := range int(length.Seconds() * float64(perSecond)) {
		due := began.Add(time.Duration(k) * time.Second / time.Duration(perSecond))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return group.Wait()
		}
		q := a.questions[k%len(a.questions)]
		group.Go(func() error {
			if err := a.ask(ctx, q, rand.IntN(a.stored)); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			took := time.Since(due)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.took[q.name] = append(a.took[q.name], took)
			return nil
		})
	}
	return group.Wait()
}

func (a *asker) ask(ctx context.Context, q question, i int) error {
	method := http.MethodGet
	if q.body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(ctx, method, a.URL+q.path(i), bytes.NewReader([]byte(q.body)))
	if err != nil {
		return err
	}
	token := a.Token
	if q.platform {
		token = a.PlatformToken
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	var page struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &page); err != nil {
		return err
	}
	if page.Items != nil && len(page.Items) == 0 && !q.sparse {
		return fmt.Errorf("%s answers nothing", q.path(i))
	}
	return nil
}

// fill puts some schedules through the API, which creates their cohorts, and copies them within the database, on two connections and without
// triggers. workflow names the workflow of a template. The rows are the same as if all had been put.
func fill(ctx context.Context, at announcement, n int, workflow func(i int) string, p *progress) error {
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		return err
	}
	first := time.Now().In(newYork).Add(30 * time.Minute) // none fires during the run
	templates := min(n, readTemplates)
	if err := putTemplates(ctx, at, templates, workflow, func(i int) carillon.Spec {
		due := first.Add(time.Duration(i%(22*60)) * time.Minute)
		return carillon.Spec{Timezone: "America/New_York", Cron: carillon.Strings{fmt.Sprintf("%d %d * * *", due.Minute(), due.Hour())}}
	}); err != nil {
		return err
	}
	return copyUpTo(ctx, at, templates, templates, n, p)
}

// putTemplates puts the schedules from which others are copied.
func putTemplates(ctx context.Context, at announcement, templates int, workflow func(i int) string, spec func(i int) carillon.Spec) error {
	client, err := carillon.New(carillon.Config{URL: at.URL, Token: at.Token})
	if err != nil {
		return err
	}
	defer client.Close()
	sum, err := client.Schedules.PutAll(ctx, func(yield func(carillon.BulkLine) bool) {
		for i := range templates {
			line := carillon.BulkLine{Workflow: workflow(i), Key: readKey(i)}
			line.Spec = spec(i)
			line.Payload, line.Labels = payloadFor(i, 1), map[string]string{"plan": fmt.Sprint(i % 100)}
			if !yield(line) {
				return
			}
		}
	}, carillon.BulkParams{})
	if err == nil && sum.Inserted != templates {
		err = fmt.Errorf("got %+v", sum)
	}
	return err
}

// copyUpTo makes schedules begin..n-1, and analyzes the tables.
func copyUpTo(ctx context.Context, at announcement, templates, begin, n int, p *progress) error {
	const part = 100_000
	parts, copying := errgroup.WithContext(ctx)
	parts.SetLimit(2)
	step := p.steps((n-begin+part-1)/part, "hundred thousands copied")
	for from := begin; from < n; from += part {
		parts.Go(func() error {
			defer step()
			return copyTemplates(copying, at.DatabaseURL, templates, from, min(n, from+part))
		})
	}
	if err := parts.Wait(); err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, at.DatabaseURL)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	for _, table := range []string{"schedule", "schedule_state", "member", "label", "cohort", "cohort_timing"} {
		if _, err := db.Exec(ctx, `VACUUM (ANALYZE) `+table); err != nil {
			return err
		}
	}
	_, err = db.Exec(ctx, `CHECKPOINT`)
	return err
}

// copyTemplates makes schedules from..to-1 as copies of the first templates schedules.
func copyTemplates(ctx context.Context, url string, templates, from, to int) error {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	if _, err := db.Exec(ctx, `SET session_replication_role = replica`); err != nil { // no triggers
		return err
	}
	_, err = db.Exec(ctx, `
		WITH template AS MATERIALIZED (
			SELECT s.*, substr(s.key, 6)::int AS number
			FROM schedule s
			WHERE s.tenant_id = (SELECT min(id) FROM tenant) AND s.workflow LIKE 'digest-%' AND substr(s.key, 6)::int < $1
		), made AS (
			INSERT INTO schedule (tenant_id, workflow, key, shard, status, spec, payload, labels, anchor_at, cohort_id, phase, tzdata, created_at, updated_at, updated_by, next_after)
			SELECT t.tenant_id, t.workflow, 'user_' || lpad(n::text, 8, '0'), t.shard, t.status, t.spec, t.payload, t.labels, t.anchor_at,
				t.cohort_id, t.phase, t.tzdata, t.created_at, t.updated_at, t.updated_by, t.next_after
			FROM generate_series($2::int, $3::int - 1) n
			JOIN template t ON t.number = n % $1
			RETURNING tenant_id, id, cohort_id, phase, anchor_at, workflow, key, labels
		), state AS (
			INSERT INTO schedule_state (tenant_id, schedule_id) SELECT tenant_id, id FROM made
		), labelled AS (
			INSERT INTO label (tenant_id, name, value, workflow, key)
			SELECT m.tenant_id, l.key, l.value, m.workflow, m.key FROM made m, jsonb_each_text(m.labels) l
		)
		INSERT INTO member (cohort_id, phase, schedule_id, tenant_id, from_at)
		SELECT cohort_id, phase, id, tenant_id, anchor_at FROM made`, templates, from, to)
	return err
}
