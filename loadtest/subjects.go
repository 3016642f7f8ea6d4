package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	subjectLines    = 200_000   // profiles and schedules that are put in bulk
	subjectsStored  = 1_000_000 // when reads are timed
	subjectsEach    = 5         // schedules of a subject that has some
	subjectsFor     = 60 * time.Second
	subjectsWithin  = 100 // ms, p99
	subjectTriggers = 500 // subjects with a tick
)

// subjects puts as many profiles in bulk as schedules, and compares the rates. Then it stores a million profiles and as many schedules,
// five for one subject, and reads overviews and explanations of days at a steady rate.
func subjects(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	_, at, end, err := openDev(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer end()
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	client := httpClient(transport)

	lines := o.scaled(subjectLines)
	u := upserts{client, at, lines, p}
	schedules, err := u.put(ctx, "schedules", 1, 8, carillon.BulkSummary{Inserted: lines})
	if err != nil {
		return nil, err
	}
	fresh, err := u.putProfiles(ctx, "profiles", "Europe/Berlin", carillon.BulkSummary{Inserted: lines})
	if err != nil {
		return nil, err
	}
	unchanged, err := u.putProfiles(ctx, "unchanged profiles", "Europe/Berlin", carillon.BulkSummary{Unchanged: lines})
	if err != nil {
		return nil, err
	}
	changed, err := u.putProfiles(ctx, "changed profiles", "Asia/Tokyo", carillon.BulkSummary{Updated: lines})
	if err != nil {
		return nil, err
	}

	n := o.scaled(subjectsStored)
	took, err := readSubjects(ctx, o, u, n)
	if err != nil {
		return nil, err
	}
	r := &report{}
	r.figure("subjects", float64(n))
	r.figure("schedules_per_second", float64(lines)/schedules.Seconds())
	r.figure("profiles_per_second", float64(lines)/fresh.Seconds())
	r.figure("unchanged_profiles_per_second", float64(lines)/unchanged.Seconds())
	r.figure("changed_profiles_per_second", float64(lines)/changed.Seconds())
	r.atMost("profiles_times_schedules", fresh.Seconds()/schedules.Seconds(), 2)
	for _, q := range subjectQuestions {
		r.figure(q.name+"_p50_ms", milliseconds(percentile(took[q.name], 0.5)))
		r.atMost(q.name+"_p99_ms", milliseconds(percentile(took[q.name], 0.99)), subjectsWithin)
	}
	return r, nil
}

// readSubjects stores n schedules and profiles, reads them at a steady rate, and returns how long the answers took.
func readSubjects(ctx context.Context, o options, u upserts, n int) (took map[string][]time.Duration, err error) {
	if err := fill(ctx, u.at, n, readWorkflow, u.p); err != nil {
		return nil, fmt.Errorf("load schedules: %w", err)
	}
	if err := fillSubjects(ctx, u.at, n, u.p); err != nil {
		return nil, fmt.Errorf("load profiles: %w", err)
	}
	asker := &asker{announcement: u.at, client: u.client, questions: subjectQuestions, stored: n, took: map[string][]time.Duration{}}
	if err := asker.trigger(ctx, min(subjectTriggers, n/subjectsEach)); err != nil {
		return nil, err
	}
	if err := asker.run(ctx, readRate, 5*time.Second); err != nil { // statements are prepared and caches filled
		return nil, err
	}
	clear(asker.took)
	return asker.took, asker.run(ctx, readRate, o.lasting(subjectsFor, 10*time.Second))
}

// subjectOf returns a subject that has schedules: that of the schedule with a number.
func subjectOf(i int) string { return readKey(i - i%subjectsEach) }

var subjectQuestions = []question{
	{name: "overview", path: func(i int) string { return "/v1/subjects/" + subjectOf(i) + "/overview" }},
	{name: "explain_today", path: func(i int) string {
		return "/v1/subjects/" + subjectOf(i) + "/explain?on=" + time.Now().UTC().Format(time.DateOnly)
	}},
	{name: "explain_tomorrow", path: func(i int) string {
		return "/v1/subjects/" + subjectOf(i) + "/explain?on=" + time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	}},
	{name: "profile", path: func(i int) string { return "/v1/subjects/" + subjectOf(i) }},
}

// trigger makes a tick of the first schedule of some subjects.
func (a *asker) trigger(ctx context.Context, subjects int) error {
	client, err := carillon.New(carillon.Config{URL: a.URL, Token: a.Token})
	if err != nil {
		return err
	}
	defer client.Close()
	for i := range subjects {
		if _, err := client.Schedules.Trigger(ctx, readWorkflow(i*subjectsEach), readKey(i*subjectsEach), carillon.TriggerParams{}); err != nil {
			return fmt.Errorf("trigger: %w", err)
		}
	}
	return nil
}

// putProfiles sends a profile of each user, in one request, and returns how long the answer took, which must be want.
func (u upserts) putProfiles(ctx context.Context, what, zone string, want carillon.BulkSummary) (took time.Duration, err error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	for i := range u.n {
		line := map[string]any{
			"subject": fmt.Sprintf("user_%07d", i), "timezone": zone, "labels": map[string]string{"plan": "pro"},
			"quiet_hours": map[string]string{"from": "22:00", "to": "07:00", "then": "defer"},
		}
		if err := enc.Encode(line); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	sum, err := sendBulk(ctx, u.client, u.at, "/v1/subjects/bulk", body.Bytes())
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

// fillSubjects gives one subject to every five of the n filled schedules, and stores n profiles. Most profiles are of subjects without
// schedules.
func fillSubjects(ctx context.Context, at announcement, n int, p *progress) error {
	db, err := pgx.Connect(ctx, at.DatabaseURL)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	if _, err := db.Exec(ctx, `SET session_replication_role = replica`); err != nil { // no triggers
		return err
	}
	for _, step := range []struct {
		what, sql string
		args      []any
	}{
		{"schedules have subjects", `
			UPDATE schedule
			SET subject = 'user_' || lpad((substr(key, 6)::int / $1 * $1)::text, 8, '0')
			WHERE tenant_id = (SELECT min(id) FROM tenant) AND workflow LIKE 'digest-%' AND substr(key, 6)::int % $1 > 0`, []any{subjectsEach}},
		{"profiles stored", `
			INSERT INTO subject_profile (tenant_id, subject, timezone, quiet_hours, labels, created_at, updated_at, updated_by)
			SELECT t.tenant_id, 'user_' || lpad(n::text, 8, '0'), t.timezone, t.quiet_hours, t.labels, t.created_at, t.updated_at, t.updated_by
			FROM generate_series(0, $1::int - 1) n
			CROSS JOIN (SELECT * FROM subject_profile WHERE tenant_id = (SELECT min(id) FROM tenant) LIMIT 1) t
			ON CONFLICT DO NOTHING`, []any{n}},
		{"profiles analyzed", `VACUUM (ANALYZE) subject_profile`, nil},
		{"rows written to disk", `CHECKPOINT`, nil},
	} {
		if _, err := db.Exec(ctx, step.sql, step.args...); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		p.say("%s", step.what)
	}
	return analyzed(ctx, db)
}
