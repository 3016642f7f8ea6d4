package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

const (
	restingState    = "resting" // a schedule that is paused until a time stays in its cohort
	mostCounted     = 10_000    // rows of a queue
	mostDueCohorts  = 20_000
	mostDueMembers  = 25_000
	mostRests       = 20_000  // pauses that have ended
	mostTallied     = 200_000 // cohorts
	latenessSample  = 1000    // ticks
	latenessRows    = 500     // of the index
	latenessOf      = time.Hour
	mostBadEndpoint = 100
)

// bounded is a count up to mostCounted. more is set if the count reached that limit.
type bounded struct {
	n    *int64
	more *bool
}

func (c bounded) scan(row pgx.Row) error {
	if err := row.Scan(c.n); err != nil {
		return err
	}
	*c.more = *c.more || *c.n >= mostCounted
	return nil
}

// read reads everything except the sample of ticks, in one round trip. The statements compare with now(), which does not change during
// a statement, so that an index can be used: it cannot with clock_timestamp().
func (o *Overviews) read(ctx context.Context, tenant tenants.ID, v *Overview) error {
	var b pgx.Batch
	v.Throttling, v.Failures.Endpoints = []Throttle{}, []EndpointState{}
	b.Queue(`SELECT halted_at, halt_note, `+postgres.Now+` FROM tenant WHERE id = $1`, tenant).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&v.Firing.HaltedAt, &v.Firing.Note, &v.At)
		v.At = v.At.UTC()
		return err
	})
	queueSchedules(&b, tenant, v)
	o.queueUnswept(&b, tenant, v)
	o.queueUnopened(&b, tenant, v)
	queueWaiting(&b, tenant, v)
	queueFailures(&b, tenant, v)
	queueWorkflows(&b, tenant, v)
	b.Queue(record.LeasedTicks, tenant).
		QueryRow(func(row pgx.Row) error { return row.Scan(&v.Running.Leased) })
	b.Queue(`SELECT COALESCE(sum(ticks), 0)::bigint FROM chunk WHERE opened_at IS NOT NULL AND done_at IS NULL AND tenant_id = $1`, tenant).
		QueryRow(func(row pgx.Row) error { return row.Scan(&v.Running.Pushed) })
	if err := o.DB.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("read the overview: %w", err)
	}
	return nil
}

// queueSchedules queues the number of schedules in each state.
func queueSchedules(b *pgx.Batch, tenant tenants.ID, v *Overview) {
	b.Queue(`
		SELECT (COALESCE((SELECT n FROM tally WHERE tenant_id = $1 AND cohort_id = 0), 0)
			+ COALESCE((SELECT sum(n) FROM tally_delta WHERE tenant_id = $1 AND cohort_id = 0 AND `+postgres.Unfolded("tally_delta")+`), 0))::bigint`, tenant).
		QueryRow(func(row pgx.Row) error { return row.Scan(&v.Schedules.Total) })
	b.Queue(`
		SELECT state, sum(n)::bigint
		FROM (
			SELECT state, n FROM inactive WHERE tenant_id = $1
			UNION ALL
			SELECT state, n FROM inactive_delta WHERE tenant_id = $1 AND `+postgres.Unfolded("inactive_delta")+`
		) i
		GROUP BY state`, tenant).Query(func(rows pgx.Rows) error {
		var state string
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error { v.Schedules.add(state, n); return nil })
		v.Schedules.Active = max(0, v.Schedules.Total-v.Schedules.sum())
		return err
	})
	b.Queue(`
		SELECT firing, sum(n)::bigint
		FROM `+endedRests+`
		GROUP BY firing`, tenant, mostRests).Query(func(rows pgx.Rows) error {
		var firing bool
		var n, all int64
		_, err := pgx.ForEachRow(rows, []any{&firing, &n}, func() error {
			v.Schedules.wake(firing, n)
			all += n
			return nil
		})
		v.Schedules.Truncated = all >= mostRests
		return err
	})
}

// queueFailures queues the counts of failed ticks, of ticks that are retried or have no answer yet, and the endpoints that are not
// enabled.
func queueFailures(b *pgx.Batch, tenant tenants.ID, v *Overview) {
	for why, to := range map[string]*int64{"retry": &v.Failures.Retrying, "answer": &v.Running.Awaited} {
		b.Queue(`SELECT count(*) FROM (SELECT FROM delayed WHERE tenant_id = $1 AND why = $2 LIMIT $3) h`, tenant, why, mostCounted).
			QueryRow(bounded{to, &v.Failures.Truncated}.scan)
	}
	b.Queue(`SELECT count(*) FROM (SELECT FROM dead_letter WHERE tenant_id = $1 LIMIT $2) d`, tenant, mostCounted).
		QueryRow(bounded{&v.Failures.DeadLetters, &v.Failures.Truncated}.scan)
	b.Queue(`
		SELECT count(*)
		FROM (
			SELECT failed_at
			FROM dead_letter
			WHERE tenant_id = $1 AND nominal_at > `+postgres.TxNow+` - interval '2 days'
			ORDER BY nominal_at DESC
			LIMIT $2
		) d
		WHERE failed_at > `+postgres.TxNow+` - interval '1 hour'`, tenant, mostCounted).
		QueryRow(bounded{&v.Failures.LastHour, &v.Failures.Truncated}.scan)
	b.Queue(`SELECT name, state FROM endpoint WHERE tenant_id = $1 AND state <> 'enabled' ORDER BY name LIMIT $2`, tenant, mostBadEndpoint).
		Query(func(rows pgx.Rows) (err error) {
			found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[EndpointState])
			v.Failures.Endpoints = append(v.Failures.Endpoints, found...)
			return err
		})
}

// queueWorkflows queues the workflows that are held, and those that do not meet what is expected of them.
func queueWorkflows(b *pgx.Batch, tenant tenants.ID, v *Overview) {
	v.Unmet, v.Held = []Unmet{}, []HeldWorkflow{}
	b.Queue(`SELECT workflow, event, since, data FROM unmet_expectation WHERE tenant_id = $1 ORDER BY workflow, event LIMIT $2`, tenant, mostBadEndpoint).
		Query(func(rows pgx.Rows) (err error) {
			found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Unmet])
			for i := range found {
				found[i].Since = found[i].Since.UTC()
			}
			v.Unmet = append(v.Unmet, found...)
			return err
		})
	b.Queue(`SELECT name, held_at FROM workflow WHERE tenant_id = $1 AND held_at IS NOT NULL ORDER BY name LIMIT $2`, tenant, mostBadEndpoint).
		Query(func(rows pgx.Rows) (err error) {
			found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[HeldWorkflow])
			for i := range found {
				found[i].Since = found[i].Since.UTC()
			}
			v.Held = append(v.Held, found...)
			return err
		})
}

// endedRests counts the schedules whose pause has ended by its time, by workflow and by whether they fire. $1 is the tenant; it reads
// at most $2 schedules. The status is a constant, so that the index of paused schedules is used.
const endedRests = `(
			SELECT workflow, cohort_id IS NOT NULL AS firing, count(*) AS n
			FROM (
				SELECT workflow, cohort_id
				FROM schedule
				WHERE tenant_id = $1 AND status = 'paused' AND paused_until <= ` + postgres.TxNow + `
				ORDER BY paused_until
				LIMIT $2
			) s
			GROUP BY workflow, cohort_id IS NOT NULL
		) r`

// queueUnswept queues the number of due ticks that are not swept. It finds cohorts by their next time, and counts a tick for each
// member. Of a cohort that is being swept, it counts the members after the cursor.
func (o *Overviews) queueUnswept(b *pgx.Batch, tenant tenants.ID, v *Overview) {
	const columns = "d.id, d.next_at, d.throttled_at, d.run_at, d.at_phase, d.at_id"
	due := cohorts.ByNextTime(columns, "d.next_at <= "+postgres.TxNow+" AND (d.due_at <= "+postgres.TxNow+" OR d.due_at = 'infinity')", func(from, where string) string {
		return `
			SELECT ` + columns + `
			FROM ` + from + `
			WHERE ` + where + `
			ORDER BY d.next_at, d.id
			LIMIT $2`
	})
	b.Queue(`
		WITH due AS MATERIALIZED (
			SELECT *
			FROM (`+due+`) d
			ORDER BY next_at, id
			LIMIT $2
		), begun AS (
			SELECT count(*) AS n
			FROM (
				SELECT
				FROM due d
				JOIN member m ON m.cohort_id = d.id AND (m.phase, m.schedule_id) > (d.at_phase, d.at_id) AND m.tenant_id = $1
				WHERE d.run_at IS NOT NULL
				LIMIT $3
			) m
		)
		SELECT (SELECT n FROM begun) + COALESCE((
				SELECT sum(t.n) FROM due d JOIN tally t ON t.tenant_id = $1 AND t.cohort_id = d.id WHERE d.run_at IS NULL), 0)::bigint,
			(SELECT count(*) FROM due) >= $2 OR (SELECT n FROM begun) >= $3,
			(SELECT min(next_at) FROM due), (SELECT min(throttled_at) FROM due)`, tenant, mostDueCohorts, mostDueMembers).
		QueryRow(func(row pgx.Row) error {
			var more bool
			var since *time.Time
			if err := row.Scan(&v.Backlog.Unswept, &more, &v.Backlog.OldestAt, &since); err != nil {
				return err
			}
			v.Backlog.Truncated = v.Backlog.Truncated || more
			if since != nil && v.Firing.HaltedAt == nil {
				v.Throttling = append(v.Throttling, Throttle{By: "ticks_per_second", Waiting: v.Backlog.Unswept, Since: since})
			}
			return nil
		})
}

// queueUnopened queues the number of ticks that are swept but not opened. It comes after queueUnswept, because it compares with the
// oldest time that this one reads.
func (o *Overviews) queueUnopened(b *pgx.Batch, tenant tenants.ID, v *Overview) {
	floor, stuck := int64(0), []int64{}
	if o.Unopened != nil {
		floor, stuck = o.Unopened()
	}
	b.Queue(`
		SELECT COALESCE(sum(ticks), 0)::bigint, min(nominal_at)
		FROM (
			SELECT ticks, nominal_at
			FROM chunk
			WHERE shard = ANY (ARRAY (SELECT generate_series(0, 63))::smallint[]) AND tenant_id = $1 AND opened_at IS NULL AND id >= $2
			UNION ALL
			SELECT c.ticks, c.nominal_at
			FROM chunk c
			WHERE c.id = ANY ($3) AND c.id < $2 AND c.tenant_id = $1 AND `+chunk.StillUnopened+`
		) c`, tenant, floor, stuck).
		QueryRow(func(row pgx.Row) error {
			var at *time.Time
			err := row.Scan(&v.Backlog.Unopened, &at)
			if oldest := v.Backlog.OldestAt; at != nil && (oldest == nil || at.Before(*oldest)) {
				v.Backlog.OldestAt = at
			}
			return err
		})
}

// queueWaiting queues the numbers of ticks that wait for a worker, for another tick, for a time or for a slot.
func queueWaiting(b *pgx.Batch, tenant tenants.ID, v *Overview) {
	b.Queue(`SELECT COALESCE(sum(ticks - taken), 0)::bigint, count(*) >= $2 FROM (SELECT ticks, taken FROM ready WHERE tenant_id = $1 LIMIT $2) r`, tenant, mostCounted).
		QueryRow(func(row pgx.Row) error {
			var more bool
			err := row.Scan(&v.Backlog.Ready, &more)
			v.Backlog.Truncated = v.Backlog.Truncated || more
			return err
		})
	b.Queue(`SELECT count(*) FROM (SELECT FROM buffered WHERE tenant_id = $1 LIMIT $2) q`, tenant, mostCounted).
		QueryRow(bounded{&v.Backlog.Buffered, &v.Backlog.Truncated}.scan)
	b.Queue(`SELECT count(*) FROM (SELECT FROM delayed WHERE tenant_id = $1 AND why NOT IN ('answer', 'later') LIMIT $2) h`, tenant, mostCounted).
		QueryRow(bounded{&v.Backlog.Held, &v.Backlog.Truncated}.scan)
	b.Queue(`SELECT workflow, count(*) FROM (SELECT workflow FROM queued WHERE tenant_id = $1 LIMIT $2) w GROUP BY workflow ORDER BY workflow`, tenant, mostCounted).
		Query(func(rows pgx.Rows) error {
			var one Throttle
			_, err := pgx.ForEachRow(rows, []any{&one.Workflow, &one.Waiting}, func() error {
				one.By = "max_running"
				v.Throttling = append(v.Throttling, one)
				return nil
			})
			return err
		})
}

// countWorkflows counts schedules by workflow. It counts the active ones by the members of their cohorts. more reports that there
// are more cohorts than it reads.
func countWorkflows(ctx context.Context, db postgres.DB, tenant tenants.ID) (byName map[string]*StateCounts, more bool, err error) {
	byName = map[string]*StateCounts{}
	of := func(name string) *StateCounts {
		if byName[name] == nil {
			byName[name] = &StateCounts{}
		}
		return byName[name]
	}
	var b pgx.Batch
	b.Queue(`
		SELECT workflow, sum(n)::bigint, count(*)
		FROM (SELECT workflow, n FROM tally WHERE tenant_id = $1 AND cohort_id > 0 AND n > 0 AND workflow IS NOT NULL LIMIT $2) t
		GROUP BY workflow`, tenant, mostTallied).Query(func(rows pgx.Rows) error {
		var name string
		var n, cohorts, all int64
		_, err := pgx.ForEachRow(rows, []any{&name, &n, &cohorts}, func() error {
			of(name).Active += n
			all += cohorts
			return nil
		})
		more = all >= mostTallied
		return err
	})
	b.Queue(`
		SELECT workflow, state, sum(n)::bigint
		FROM (
			SELECT workflow, state, n FROM inactive WHERE tenant_id = $1
			UNION ALL
			SELECT workflow, state, n FROM inactive_delta WHERE tenant_id = $1 AND `+postgres.Unfolded("inactive_delta")+`
		) i
		GROUP BY workflow, state
		HAVING sum(n) <> 0`, tenant).Query(func(rows pgx.Rows) error {
		var name, state string
		var n int64
		_, err := pgx.ForEachRow(rows, []any{&name, &state, &n}, func() error {
			of(name).add(state, n)
			if state == restingState {
				of(name).Active -= n
			}
			return nil
		})
		return err
	})
	b.Queue(`SELECT workflow, firing, n FROM `+endedRests, tenant, mostRests).Query(func(rows pgx.Rows) error {
		var name string
		var firing bool
		var n, all int64
		_, err := pgx.ForEachRow(rows, []any{&name, &firing, &n}, func() error {
			of(name).wake(firing, n)
			all += n
			return nil
		})
		more = more || all >= mostRests
		return err
	})
	return byName, more, db.SendBatch(ctx, &b).Close()
}

// lateness returns the lateness of a sample of the ticks whose nominal times are in the last hour: some of each row of the index,
// newest first.
func (o *Overviews) lateness(ctx context.Context, tenant tenants.ID, now time.Time) (l Lateness, err error) {
	rows, _ := o.DB.Query(ctx, `
		SELECT id, nominal_at, ticks, items
		FROM tick_time
		WHERE tenant_id = $1 AND nominal_at > $2 AND nominal_at <= $3
		ORDER BY nominal_at DESC, id DESC
		LIMIT $4`, tenant, now.Add(-latenessOf), now, latenessRows) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[indexRow])
	if err != nil {
		return l, fmt.Errorf("read the index by time: %w", err)
	}
	keys, err := sample(found)
	if err != nil || len(keys.IDs) == 0 {
		return l, err
	}
	rows, _ = o.DB.Query(ctx, `
		SELECT (extract(epoch FROM t.fired_at - t.nominal_at) * 1000)::bigint
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
		JOIN `+record.TheTick+` ON t.state <> $8`,
		tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, keys.From, keys.Through, int16(record.Skipped)) // CollectRows reports the error
	late, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return l, fmt.Errorf("read how late ticks were: %w", err)
	}
	if l.Ticks = len(late); l.Ticks == 0 {
		return l, nil
	}
	slices.Sort(late)
	at := func(percent int) *int64 { return new(late[(percent*len(late)+99)/100-1]) }
	l.P50, l.P99, l.Most = at(50), at(99), at(100)
	return l, nil
}

// sample picks about latenessSample keys of ticks, evenly over the rows of the index.
func sample(found []indexRow) (keys record.Keys, err error) {
	total := 0
	for _, r := range found {
		total += r.Ticks
	}
	every := max(1, (total+latenessSample-1)/latenessSample)
	next := 0 // of all ticks, which is picked next
	for i, seen := 0, 0; i < len(found); seen, i = seen+found[i].Ticks, i+1 {
		r := found[i]
		if next >= seen+r.Ticks {
			continue
		}
		all, err := record.UnpackKeys(r.Items, r.NominalAt.UTC(), r.Ticks)
		if err != nil {
			return keys, fmt.Errorf("entry %d of the index by time: %w", r.ID, err)
		}
		for ; next < seen+r.Ticks; next += every {
			keys.Add(all[next-seen], 0)
		}
	}
	return keys, nil
}
