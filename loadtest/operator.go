package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	operatorSchedules = 1_006_000 // 199 of 200 in one workflow
	operatorTicks     = 3         // of each schedule
	operatorWithin    = 50        // ms, p99 of a read, and of a hold and a release
	operatorDST       = 2_000     // ms, for a year of clock changes
	operatorGroups    = 500       // ms, for the forecast by group
	operatorEach      = 40        // requests of each kind
	operatorRate      = 20        // requests a second
)

// operatorWorkflow returns the workflow of a schedule: most are in one.
func operatorWorkflow(i int) string {
	if i %= readTemplates; i%200 == 199 {
		return fmt.Sprint("digest-", 1+i/200%9)
	}
	return operatorMain
}

const operatorMain = "digest-0"

// operated is a server with many schedules and ticks, and what its operator asks.
type operated struct {
	*asker
	db     *pgx.Conn
	sdk    *carillon.Client
	p      *progress
	r      *report
	ticks  []string // ids
	things []string // ids of schedules
}

// operator stores many schedules and ticks and times every read of an operator. Then it holds and releases the largest workflow, and
// pauses a tenth of the schedules and undoes that while others pause and resume some. With --database-url the rows stay afterwards, for
// a look at them with `carillon dev`.
func operator(ctx context.Context, o options, p *progress) (*report, error) {
	return operatedBy(ctx, o, p, (*operated).readAll, (*operated).holdAndRelease, (*operated).pauseAndUndo)
}

// operatedBy starts a server, stores the schedules and the ticks of an operator's tenant, and runs steps on them.
func operatedBy(ctx context.Context, o options, p *progress, steps ...func(*operated, context.Context) error) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	_, at, end, err := openDev(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer end()
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	op := &operated{p: p, r: &report{}, asker: &asker{
		announcement: at, client: httpClient(transport), stored: o.scaled(operatorSchedules), took: map[string][]time.Duration{},
	}}
	if op.db, err = pgx.Connect(ctx, at.DatabaseURL); err != nil {
		return nil, err
	}
	defer op.db.Close(context.WithoutCancel(ctx))
	if op.sdk, err = carillon.New(carillon.Config{URL: at.URL, Token: at.Token}); err != nil {
		return nil, err
	}
	defer op.sdk.Close()
	began := time.Now()
	if err := op.seed(ctx); err != nil {
		return nil, fmt.Errorf("store schedules and ticks: %w", err)
	}
	op.r.figure("seed_seconds", time.Since(began).Seconds())
	op.r.figure("schedules", float64(op.stored))
	op.r.figure("ticks", float64(op.stored*operatorTicks))
	for _, step := range steps {
		if err := step(op, ctx); err != nil {
			return nil, err
		}
	}
	return op.r, nil
}

// readAll times every read.
func (op *operated) readAll(ctx context.Context) error {
	usual, slower := op.reads()
	for _, q := range append(usual, slower...) {
		for range 3 { // statements are prepared and caches filled
			if err := op.ask(ctx, q.question, 1); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
		}
	}
	for _, q := range usual {
		op.questions = append(op.questions, q.question)
	}
	op.p.say("%d kinds of reads", len(op.questions))
	if err := op.run(ctx, operatorRate, time.Duration(len(op.questions)*operatorEach)*time.Second/operatorRate); err != nil {
		return err
	}
	for _, q := range slower { // one after the other
		for range 10 {
			began := time.Now()
			if err := op.ask(ctx, q.question, 1); err != nil {
				return fmt.Errorf("%s: %w", q.name, err)
			}
			op.took[q.name] = append(op.took[q.name], time.Since(began))
		}
	}
	for _, q := range append(usual, slower...) {
		op.r.figure(q.name+"_p50_ms", milliseconds(percentile(op.took[q.name], 0.5)))
		op.r.atMost(q.name+"_p99_ms", milliseconds(percentile(op.took[q.name], 0.99)), q.within)
	}
	return nil
}

// timedRead is a read, and within how many milliseconds it is answered.
type timedRead struct {
	question
	within float64
}

// reads returns the reads of an operator, and those that may take longer.
func (op *operated) reads() (usual, slower []timedRead) {
	now := time.Now().UTC()
	day, week := now.Add(-24*time.Hour).Format(time.RFC3339), now.Add(-7*24*time.Hour).Format(time.RFC3339)
	path := func(i int) string { return "/v1/workflows/" + operatorWorkflow(i) + "/schedules/" + readKey(i) }
	add := func(name string, path func(i int) string) {
		usual = append(usual, timedRead{question{name: name, path: path}, operatorWithin})
	}
	fixed := func(name, path string) { add(name, func(int) string { return path }) }
	fixed("overview", "/v1/admin/overview")
	fixed("series_hour", "/v1/admin/series")
	fixed("series_day", "/v1/admin/series?step=5m&from="+day)
	fixed("series_week", "/v1/admin/series?step=1h&from="+week)
	fixed("series_workflow", "/v1/admin/series?step=5m&workflow="+operatorMain+"&from="+day)
	fixed("forecast", "/v1/admin/forecast?hours=24")
	fixed("forecast_workflow", "/v1/admin/forecast?hours=24&workflow="+operatorMain)
	fixed("workflows", "/v1/workflows")
	fixed("endpoint_health", "/v1/endpoints/hooks/health")
	fixed("zones", "/v1/zones")
	fixed("zone", "/v1/zones/Europe%2FBerlin")
	fixed("usage", "/v1/usage")
	fixed("quotas", "/v1/quotas")
	fixed("audit", "/v1/admin/audit")
	fixed("dead_letters", "/v1/admin/dead-letters")
	fixed("dead_letters_workflow", "/v1/admin/dead-letters?workflow="+operatorMain)
	fixed("dead_letter_groups", "/v1/admin/dead-letters/groups")
	fixed("list_summary", "/v1/schedules?fields=summary")
	fixed("list_failing", "/v1/schedules?fields=summary&failing=true")
	fixed("list_timezone", "/v1/schedules?fields=summary&timezone=America%2FNew_York")
	fixed("ticks", "/v1/ticks")
	fixed("ticks_failed", "/v1/ticks?state=failed")
	fixed("ticks_workflow", "/v1/ticks?workflow="+operatorMain)
	add("list_key", func(i int) string { return "/v1/schedules?fields=summary&key=" + readKey(i) })
	add("list_key_contains", func(i int) string { return "/v1/schedules?fields=summary&key_contains=" + readKey(i)[10:] })
	add("list_subject", func(i int) string { return "/v1/schedules?fields=summary&subject=" + readKey(i) })
	add("list_label", func(i int) string {
		return "/v1/schedules?fields=summary&label=" + url.QueryEscape(fmt.Sprint("plan:", i%100))
	})
	add("schedule_by_id", func(i int) string { return "/v1/schedules/" + op.things[i%len(op.things)] })
	add("ticks_key", func(i int) string { return "/v1/ticks?key=" + readKey(i) })
	add("ticks_subject", func(i int) string { return "/v1/ticks?subject=" + readKey(i) })
	add("ticks_schedule", func(i int) string { return path(i) + "/ticks" })
	add("tick", func(i int) string { return "/v1/ticks/" + op.ticks[i%len(op.ticks)] })
	add("explain", func(i int) string { return path(i) + "/explain?at=" + url.QueryEscape(day) })
	add("sample", func(i int) string { return path(i) + "/sample" })
	add("subject_overview", func(i int) string { return "/v1/subjects/" + readKey(i) + "/overview" })
	for i := range usual {
		usual[i].sparse = usual[i].name == "list_key_contains"
	}
	for _, name := range []string{"overview", "usage", "audit"} {
		usual = append(usual, timedRead{question{name: "platform_" + name, path: func(int) string { return "/v1/platform/" + name }, platform: true}, operatorWithin})
	}
	slower = []timedRead{
		{question{name: "forecast_groups", path: func(int) string { return "/v1/admin/forecast?hours=24&group=workflow,timezone,timing" }}, operatorGroups},
		{question{name: "dst_year", path: func(int) string {
			return "/v1/admin/dst?from=" + now.Format(time.RFC3339) + "&to=" + now.AddDate(1, 0, 0).Format(time.RFC3339)
		}}, operatorDST},
	}
	return usual, slower
}
