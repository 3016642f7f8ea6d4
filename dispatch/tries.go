package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// sendable is a tick that is under way, with what its schedule's version says of its delivery.
type sendable struct {
	tick
	Workflow    string
	Key         string
	Own         *string `db:"own_payload"`
	Queue       *string
	Priority    *int16
	Timeout     *int32 `db:"timeout_s"`
	MaxAttempts *int16
	Spec        string
	AnchorAt    time.Time
}

// sendables reads those of the tries whose ticks are under way in that very attempt.
func sendables(ctx context.Context, db postgres.DB, tenant tenants.ID, tries []try) ([]*sendable, error) {
	if len(tries) == 0 {
		return nil, nil
	}
	var keys keyArrays
	for _, t := range tries {
		keys.add(t.TickKey, t.Attempt)
	}
	rows, _ := db.Query(ctx, `
		SELECT `+tickColumns+`,
			COALESCE(s.workflow, r.workflow) AS workflow, COALESCE(s.key, r.key) AS key,
			COALESCE(t.payload, CASE WHEN s.id IS NOT NULL THEN s.payload ELSE r.payload END) AS own_payload,
			COALESCE(s.queue, r.queue) AS queue, COALESCE(s.priority, r.priority) AS priority,
			COALESCE(s.timeout_s, r.timeout_s) AS timeout_s, COALESCE(s.max_attempts, r.max_attempts) AS max_attempts,
			COALESCE(s.spec, r.spec) AS spec, COALESCE(s.anchor_at, r.anchor_at) AS anchor_at
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
		JOIN `+theTick+` ON t.state = $8 AND t.attempt = i.attempt
		LEFT JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id AND s.version = t.version
		LEFT JOIN revision r ON r.tenant_id = t.tenant_id AND r.schedule_id = t.schedule_id AND r.version = t.version
		WHERE s.id IS NOT NULL OR r.version IS NOT NULL
		ORDER BY t.nominal_at, t.schedule_id, t.seq`,
		tenant, keys.ids, keys.at, keys.seqs, keys.tries, keys.from, keys.through, int16(Running)) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[sendable])
	if err != nil {
		return nil, fmt.Errorf("read ticks to send: %w", err)
	}
	return found, nil
}

// openTries opens a chunk of ticks that are sent again, and ends the attempts whose answer has not come in time.
func (d *Dispatch) openTries(ctx context.Context, tx pgx.Tx, o *opened) error {
	c := o.chunk
	tries, err := unpackTries(c.Items)
	if err != nil {
		return fmt.Errorf("chunk %d: %w", c.ID, err)
	}
	var send []try
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
	o.now = now
	for _, s := range found {
		if s.stopped() {
			o.ending = append(o.ending, ending{TickKey: s.key(), attempt: s.Attempt, outcome: cancelled})
			continue
		}
		r := &routes[slices.Index(workflows, s.Workflow)]
		if !r.known {
			o.ending = append(o.ending, ending{TickKey: s.key(), attempt: s.Attempt, outcome: cancelled, err: new("the workflow is gone")})
			continue
		}
		if halted {
			o.hold = append(o.hold, hold{try: try{TickKey: s.key(), Attempt: s.Attempt}, shard: s.Shard, why: "halted", due: now.Add(haltedWait)})
			continue
		}
		d.place(o, &s.tick, r, s.Key, s.Own, s.Queue, s.Priority, s.Timeout, s.MaxAttempts)
	}
	return nil
}

// place puts a tick that is under way where it goes: to its endpoint, to the workers, or aside while the endpoint is
// not to be used or has too much to do.
func (d *Dispatch) place(o *opened, t *tick, r *route, key string, payload, queue *string, priority *int16, timeout *int32, attempts *int16) {
	k := t.key()
	if r.endpoint == nil {
		o.ready = append(o.ready, readyTick{k, r.name, or(queue, r.queue), or(priority, r.priority), t.Attempt, r.limited})
		return
	}
	if why, wait := d.sender.mustWait(r.endpoint, len(o.send)); wait > 0 {
		o.hold = append(o.hold, hold{try: try{TickKey: k, Attempt: t.Attempt}, shard: t.Shard, why: why, due: o.now.Add(wait)})
		return
	}
	o.send = append(o.send, &delivery{
		tenant: o.chunk.TenantID, chunk: o.chunk.ID, tick: *t, workflow: r.name, version: r.version, key: key, payload: payload,
		timeout: seconds(or(timeout, r.timeout)), maxAttempts: t.budget(or(attempts, r.maxAttempts)), endpoint: r.endpoint,
		limited: r.limited, priority: or(priority, r.priority),
	})
}

// claim writes in the rows of ticks that were there already which chunk pushes them: who takes that chunk over sends
// those again, and leaves alone what waits for a worker.
func claim(ctx context.Context, tx pgx.Tx, o *opened) error {
	var pushed, pulled keyArrays
	for _, one := range o.send {
		pushed.add(one.tick.key(), one.tick.Attempt)
	}
	for _, r := range o.ready {
		pulled.add(r.TickKey, r.attempt)
	}
	for _, w := range o.waiting {
		pulled.add(w.tick.key(), w.tick.Attempt)
	}
	for _, c := range []struct {
		keys  keyArrays
		chunk *int64
	}{{pushed, &o.chunk.ID}, {pulled, nil}} {
		if len(c.keys.ids) == 0 {
			continue
		}
		err := updateTicks(ctx, tx, nil, func() error { return nil }, `
			UPDATE tick t
			SET chunk_id = $8
			FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
			WHERE `+onTick+` AND t.schedule_id = ANY ($2) AND t.attempt = i.attempt`,
			o.chunk.TenantID, c.keys.ids, c.keys.at, c.keys.seqs, c.keys.tries, c.keys.from, c.keys.through, c.chunk)
		if err != nil {
			return fmt.Errorf("claim ticks: %w", err)
		}
	}
	return nil
}

// hold is a tick that is kept for a later moment.
type hold struct {
	try
	shard int16
	why   string
	due   time.Time
}

func insertHolds(ctx context.Context, tx pgx.Tx, tenant tenants.ID, holds []hold) error {
	if len(holds) == 0 {
		return nil
	}
	var b pgx.Batch
	for _, h := range holds {
		queueHold(&b, tenant, h.shard, h.try, h.why, h.due)
	}
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("hold ticks: %w", err)
	}
	return nil
}

// cohortsOf are the cohorts whose timings the messages of ticks need.
func cohortsOf(ticks []*tick) (shards []int16, ids []int64) {
	seen := map[int64]bool{}
	for _, t := range ticks {
		if t.CohortID != nil && !seen[*t.CohortID] {
			seen[*t.CohortID] = true
			shards, ids = append(shards, t.Shard), append(ids, *t.CohortID)
		}
	}
	return shards, ids
}
