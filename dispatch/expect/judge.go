package expect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// expecting is a workflow with expectations.
type expecting struct {
	place
	handed, ended time.Duration // 0: nothing is expected
	timeout       time.Duration // of its ticks
	now           time.Time     // by the database's clock
}

// allPaused is an SQL condition on a row w of table workflow: it has schedules, and all that could fire are paused. The counts are at most
// a few seconds old.
const allPaused = `(
			SELECT CASE WHEN sum(n) > 0 THEN COALESCE(sum(n) FILTER (WHERE state = 'resting'), 0) >=
				(SELECT COALESCE(sum(n), 0) FROM tally WHERE tenant_id = w.tenant_id AND workflow = w.name AND cohort_id > 0) ELSE false END
			FROM inactive
			WHERE tenant_id = w.tenant_id AND workflow = w.name AND state IN ('paused', 'resting'))`

// expecting reads workflows with expectations after a place. Those that are held or paused, or whose tenant does not fire, expect nothing.
func (w *Watcher) expecting(ctx context.Context, after place) ([]expecting, error) {
	rows, _ := w.pool.Query(ctx, `
		SELECT w.tenant_id, w.name, w.expect_handed_s, w.expect_ended_s, w.defaults, w.held_at IS NOT NULL OR `+tenants.Stopped+` OR `+allPaused+`, `+postgres.Now+`
		FROM workflow w
		JOIN tenant t ON t.id = w.tenant_id
		WHERE (w.tenant_id, w.name) > ($1, $2) AND (w.expect_handed_s IS NOT NULL OR w.expect_ended_s IS NOT NULL)
		ORDER BY w.tenant_id, w.name
		LIMIT $3`, after.Tenant, after.Workflow, mostWatched) // ForEachRow reports the error
	var all []expecting
	var one expecting
	var handed, ended *int32
	var defaults []byte
	var quiet bool
	_, err := pgx.ForEachRow(rows, []any{&one.Tenant, &one.Workflow, &handed, &ended, &defaults, &quiet, &one.now}, func() error {
		one.handed, one.ended, one.timeout = seconds(handed), seconds(ended), policy.DefaultTimeout
		if terms, err := policy.OfWorkflow(defaults); err == nil {
			one.timeout = terms.Timeout
		}
		if quiet {
			one.handed, one.ended = 0, 0
		}
		all = append(all, one)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read workflows with expectations: %w", err)
	}
	return all, nil
}

func seconds(n *int32) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * time.Second
}

// minute is what happened to the ticks of a workflow in one minute, with one lateness.
type minute struct {
	At                           time.Time
	Bucket                       int16
	Due, Fired, Ended, Succeeded int64
	FirstDue                     *int16
}

// judge returns the verdicts of workflows: none of one that expects nothing now.
func (w *Watcher) judge(ctx context.Context, all []expecting) (verdicts []verdict, err error) {
	all = slices.DeleteFunc(slices.Clone(all), func(of expecting) bool { return of.handed == 0 && of.ended == 0 })
	var owners []tenants.ID
	var names []string
	var from []time.Time
	for _, of := range all {
		owners, names, from = append(owners, of.Tenant), append(names, of.Workflow), append(from, of.now.Add(-of.timeout-silentSpan-time.Minute))
	}
	minutes := make([][]minute, len(all))
	rows, _ := w.pool.Query(ctx, `
		SELECT o.ord, u.*
		FROM unnest($1::int[], $2::text[], $3::timestamptz[]) WITH ORDINALITY AS o (tenant_id, workflow, from_at, ord)
		CROSS JOIN LATERAL (`+history.OfEachEndpoint("o.tenant_id", "1", "o.workflow",
		history.SeriesFrom("at, bucket, due - skipped, fired, succeeded + failed + cancelled, succeeded, first_due", "o.tenant_id", "1", "o.workflow", "e.endpoint", "o.from_at"))+`
		) u`, owners, names, from) // ForEachRow reports the error
	var ord int
	var m minute
	if _, err := pgx.ForEachRow(rows, []any{&ord, &m.At, &m.Bucket, &m.Due, &m.Fired, &m.Ended, &m.Succeeded, &m.FirstDue}, func() error {
		minutes[ord-1] = append(minutes[ord-1], m)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the series of workflows: %w", err)
	}
	for i, of := range all {
		verdicts = append(verdicts, of.late(minutes[i]), of.silent(minutes[i]))
	}
	return verdicts, nil
}

// lateData are the data of workflow.late.
type lateData struct {
	Workflow string  `json:"workflow"`
	Measure  string  `json:"measure"` // handed_out or ended
	P99      float64 `json:"p99_ms"`
	Limit    int64   `json:"limit_ms"`
	Ticks    int64   `json:"ticks"`
}

// late judges whether ticks of the last minute were handed out, or ended, later than expected.
func (of *expecting) late(minutes []minute) verdict {
	v := verdict{place: of.place, event: tenants.WorkflowLate}
	var fired, ended [record.LatenessBuckets + 1]int64
	for _, m := range minutes {
		if m.Bucket >= 0 && m.Bucket <= record.LatenessBuckets && m.At.After(of.now.Add(-lateSpan-time.Minute)) {
			fired[m.Bucket] += m.Fired
			ended[m.Bucket] += m.Ended
		}
	}
	for _, one := range []struct {
		measure string
		counts  []int64
		limit   time.Duration
	}{{"handed_out", fired[:], of.handed}, {"ended", ended[:], of.ended}} {
		p99 := history.Percentile(one.counts, 0.99)
		if one.limit == 0 || p99 == nil {
			continue
		}
		v.met = true
		if *p99 > float64(one.limit.Milliseconds()) && !v.unmet {
			data := lateData{Workflow: of.Workflow, Measure: one.measure, P99: *p99, Limit: one.limit.Milliseconds()}
			for _, n := range one.counts {
				data.Ticks += n
			}
			v.unmet, v.data = true, data
		}
	}
	return v
}

// silentData are the data of workflow.silent.
type silentData struct {
	Workflow string `json:"workflow"`
	Due      int64  `json:"due"` // in the last three minutes, or in the time that a tick may take if that is longer
}

// silent judges whether ticks became due and none succeeded. A tick that is still within its timeout does not count. A minute of the
// series counts until three quarters of it are older than the period, so that a tenant is told within a minute after the last success.
func (of *expecting) silent(minutes []minute) verdict {
	v := verdict{place: of.place, event: tenants.WorkflowSilent}
	from, over := of.now.Add(-max(silentSpan, of.timeout+time.Minute)), false
	var due, fired int64
	for _, m := range minutes {
		if !m.At.Add(time.Minute * 3 / 4).After(from) {
			continue
		}
		due, fired = due+m.Due, fired+m.Fired
		v.met = v.met || m.Succeeded > 0
		if m.FirstDue != nil {
			first := m.At.Add(time.Duration(*m.FirstDue+1) * time.Second) // it was recorded within that second
			over = over || !first.Add(of.timeout).After(of.now)
		}
	}
	if over && !v.met {
		v.unmet, v.data = true, silentData{of.Workflow, max(due, fired)} // ticks that waited for long were due earlier
	}
	return v
}
