package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// sendable is a tick that is under way, with what its schedule's version says of its delivery.
type sendable struct {
	record.Tick
	Workflow string
	Key      string
	Own      *string // payload
	stated   policy.Stored
}

// held is how many bytes the long texts of a sendable have.
func (s *sendable) held() int {
	if s.Own != nil {
		return s.Tick.Held() + len(*s.Own)
	}
	return s.Tick.Held()
}

// sendables reads those of the tries whose ticks are under way in that very attempt.
func sendables(ctx context.Context, db postgres.DB, tenant tenants.ID, tries []record.Try) (found []*sendable, err error) {
	if len(tries) == 0 {
		return nil, nil
	}
	var b pgx.Batch
	queueSendables(&b, tenant, tries, &found, nil)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("read ticks to send: %w", err)
	}
	return found, nil
}

// queueSendables reads sendables. A revision is looked for only where the schedule has another version by now. An error says
// that hold has no room for the next one; found are those before it.
func queueSendables(b *pgx.Batch, tenant tenants.ID, tries []record.Try, found *[]*sendable, hold *web.Hold) {
	var keys record.Keys
	for _, t := range tries {
		keys.Add(t.TickKey, t.Attempt)
	}
	*found = make([]*sendable, 0, len(tries))
	b.Queue(sabotage.PayloadOfNow.Without(`
		SELECT `+record.Columns+`,
			COALESCE(s.workflow, r.workflow), COALESCE(s.key, r.key),
			COALESCE(t.payload, CASE WHEN s.id IS NOT NULL THEN s.payload ELSE r.payload END),
			COALESCE(s.queue, r.queue), COALESCE(s.priority, r.priority),
			COALESCE(s.timeout_s, r.timeout_s), COALESCE(s.max_attempts, r.max_attempts),
			COALESCE(s.max_lateness_s, r.max_lateness_s), COALESCE(s.on_expired, r.on_expired)
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
		JOIN `+record.TheTick+` ON t.state = $8 AND t.attempt = i.attempt
		LEFT JOIN LATERAL (SELECT * FROM schedule s WHERE s.tenant_id = $1 AND s.id = t.schedule_id AND s.version = t.version OFFSET 0) s ON true
		LEFT JOIN LATERAL (
			SELECT * FROM revision r WHERE s.id IS NULL AND r.tenant_id = $1 AND r.schedule_id = t.schedule_id AND r.version = t.version OFFSET 0
		) r ON true
		WHERE s.id IS NOT NULL OR r.version IS NOT NULL
		ORDER BY t.nominal_at, t.schedule_id, t.seq`, " AND s.version = t.version"),
		tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, keys.From, keys.Through, int16(record.Running)).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		*found = (*found)[:0]
		for rows.Next() {
			s := &sendable{}
			t := &s.Tick
			if err := rows.Scan(&t.ScheduleID, &t.NominalAt, &t.Seq, &t.Version, &t.MissedCount, &t.Occurrence, &t.CohortID, &t.ChunkID,
				&t.LastAt, &t.UntilAt, &t.FiredAt, &t.EndedAt, &t.Shard, &t.Attempt, &t.State, &t.Reason, &t.Cause, &t.DST, &t.StartedAt,
				&t.Payload, &t.Result, &t.Error, &t.ReplayedFrom,
				&s.Workflow, &s.Key, &s.Own, &s.stated.Queue, &s.stated.Priority, &s.stated.Timeout, &s.stated.MaxAttempts, &s.stated.MaxLateness, &s.stated.OnExpired); err != nil {
				return err
			}
			if err := hold.Take(s.held()); err != nil {
				return err
			}
			*found = append(*found, s)
		}
		return rows.Err()
	})
}

// endUnwanted ends those of the ticks about to be leased that were told to stop before anybody had them, and those whose
// deadline has passed.
func (d *Dispatch) endUnwanted(ctx context.Context, tx pgx.Tx, tenant tenants.ID, found []*sendable, terms map[string]workflowTerms) (left []*sendable, err error) {
	if len(found) == 0 {
		return nil, nil
	}
	var now time.Time
	if err := tx.QueryRow(ctx, `SELECT `+postgres.Now).Scan(&now); err != nil {
		return nil, err
	}
	var endings []ending
	for _, s := range found {
		if e, over := unwanted(s, terms[s.Workflow].Terms, now); over {
			endings = append(endings, e)
			continue
		}
		left = append(left, s)
	}
	if len(endings) == 0 {
		return left, nil
	}
	_, err = d.end(ctx, tx, tenant, now.UTC(), endings)
	return left, err
}

// unwanted returns how a tick ends that is not to be delivered any more: it was told to stop, or is later than it may be.
func unwanted(s *sendable, inherited policy.Terms, now time.Time) (e ending, over bool) {
	e = ending{TickKey: s.RowKey(), attempt: s.Attempt, unsent: true}
	latest, expires := s.latest(inherited)
	switch {
	case s.Stopped():
		e.outcome = cancelled
	case expires && now.After(latest):
		e.outcome, e.final, e.err = failed, true, new("it could not be delivered within its max_lateness")
	default:
		return e, false
	}
	return e, true
}

// latest returns the last moment at which a tick may be delivered; expires is false if it may be at any time.
func (s *sendable) latest(inherited policy.Terms) (at time.Time, expires bool) {
	at, expires = inherited.With(s.stated).Latest(s.NominalAt)
	return at, expires && s.Cause != record.Backfill && s.ReplayedFrom == nil
}

// openTries opens a chunk of ticks that are sent again, and ends the attempts whose answer has not come in time.
func (d *Dispatch) openTries(ctx context.Context, tx pgx.Tx, o *opened) error {
	c := o.chunk
	tries, err := chunk.UnpackTries(c.Items)
	if err != nil {
		return fmt.Errorf("chunk %d: %w", c.ID, err)
	}
	var send []record.Try
	for _, t := range tries {
		if t.Answer {
			o.ending = append(o.ending, ending{TickKey: t.TickKey, attempt: t.Attempt, outcome: timedOut, err: new("no answer within the timeout")})
			continue
		}
		send = append(send, t)
	}
	found, err := sendables(ctx, tx, c.TenantID, send)
	if err != nil {
		return err
	}
	return d.route(ctx, tx, o, found)
}

// route sends ticks that are under way the way that their workflows are registered now.
func (d *Dispatch) route(ctx context.Context, tx pgx.Tx, o *opened, found []*sendable) error {
	var workflows []string
	for _, s := range found {
		if !slices.Contains(workflows, s.Workflow) {
			workflows = append(workflows, s.Workflow)
		}
	}
	routes, halted, now, err := d.routes(ctx, tx, o.chunk.TenantID, workflows)
	if err != nil {
		return err
	}
	if why := unreadable(routes); why != nil {
		return why
	}
	o.now, o.stopped = now, halted
	for _, s := range found {
		r := &routes[slices.Index(workflows, s.Workflow)]
		if !r.known && !s.Stopped() {
			o.ending = append(o.ending, ending{TickKey: s.RowKey(), attempt: s.Attempt, outcome: cancelled, err: new("the workflow is gone")})
			continue
		}
		if e, over := unwanted(s, r.terms, now); over && (!halted || s.Stopped()) {
			o.ending = append(o.ending, e)
			continue
		}
		if halted {
			o.park = append(o.park, parking{record.Try{TickKey: s.RowKey(), Attempt: s.Attempt}, s.Shard, s.Workflow})
			continue
		}
		d.place(o, &s.Tick, r, s.Key, s.Own, s.stated)
	}
	return nil
}

// place puts a tick that is under way where it goes: to its endpoint or to the workers. It puts the tick aside while the endpoint is
// held or has too much to do, and while a change has handed out more ticks than its tenant's rate.
func (d *Dispatch) place(o *opened, t *record.Tick, r *route, key string, payload *string, stated policy.Stored) {
	k, terms := t.RowKey(), r.terms.With(stated)
	if at := o.chunk.HandAt; at != nil && at.After(o.now) {
		o.hold = append(o.hold, record.Held{Try: record.Try{TickKey: k, Attempt: t.Attempt}, Shard: t.Shard, Why: "rate", Due: *at})
		return
	}
	if r.endpoint == nil {
		o.ready = append(o.ready, readyTick{k, r.name, terms.Queue, terms.Priority, t.Attempt, r.limited})
		return
	}
	if r.endpoint.shut() {
		o.park = append(o.park, parking{record.Try{TickKey: k, Attempt: t.Attempt}, t.Shard, r.name})
		return
	}
	why, wait, full := d.sender.mustWait(r.endpoint, len(o.send), o.bytes, o.filling, o.now.Sub(t.FiredAt))
	if wait > 0 {
		o.hold = append(o.hold, record.Held{Try: record.Try{TickKey: k, Attempt: t.Attempt}, Shard: t.Shard, Why: why, Due: o.now.Add(wait)})
		return
	}
	if full {
		o.later.add(endpointName{r.endpoint.tenant, r.endpoint.name}, o.chunk, record.Try{TickKey: k, Attempt: t.Attempt}, textLength(payload), min(mostInLot, d.sender.room/2))
		return
	}
	o.bytes += textLength(payload)
	o.send = append(o.send, &delivery{
		tenant: o.chunk.TenantID, chunk: o.chunk.ID, tick: *t, workflow: r.name, version: r.version, key: key, payload: payload,
		timeout: terms.Timeout, maxAttempts: t.Budget(terms.MaxAttempts), endpoint: r.endpoint,
		limited: r.limited, priority: terms.Priority,
	})
}

// claim writes in the rows of ticks that were there already which chunk pushes them: who takes that chunk over sends
// those again, and leaves alone what waits for a worker.
func claim(ctx context.Context, tx pgx.Tx, o *opened) error {
	var pushed, pulled []record.Try
	for _, one := range o.send {
		pushed = append(pushed, record.Try{TickKey: one.tick.RowKey(), Attempt: one.tick.Attempt})
	}
	for _, l := range o.later {
		pushed = append(pushed, l.tries...)
	}
	for _, r := range o.ready {
		pulled = append(pulled, record.Try{TickKey: r.TickKey, Attempt: r.attempt})
	}
	for _, w := range o.waiting {
		pulled = append(pulled, record.Try{TickKey: w.tick.RowKey(), Attempt: w.tick.Attempt})
	}
	if err := claimFor(ctx, tx, o.chunk.TenantID, pushed, &o.chunk.ID); err != nil {
		return err
	}
	return claimFor(ctx, tx, o.chunk.TenantID, pulled, nil)
}

func claimFor(ctx context.Context, tx pgx.Tx, tenant tenants.ID, tries []record.Try, chunk *int64) error {
	if len(tries) == 0 {
		return nil
	}
	attempts := make(map[ident.TickKey]int16, len(tries))
	for _, t := range tries {
		attempts[t.TickKey] = t.Attempt
	}
	err := record.UpdateTicks(ctx, tx, slices.Collect(maps.Keys(attempts)), record.TickUpdate{
		Sql: `
			UPDATE tick t
			SET chunk_id = $8
			FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
			WHERE ` + record.ThatTick + ` AND t.attempt = i.attempt`,
		Args: func(part []ident.TickKey) []any {
			var keys record.Keys
			for _, k := range part {
				keys.Add(k, attempts[k])
			}
			return []any{tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, keys.From, keys.Through, chunk}
		},
		Each: func() error { return nil },
	})
	if err != nil {
		return fmt.Errorf("claim ticks: %w", err)
	}
	return nil
}
