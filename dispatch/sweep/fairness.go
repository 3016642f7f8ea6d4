package sweep

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// A tenant with more due in a shard than it may be given now is throttled: its cohorts get due_at = infinity and throttled_at = now, once, and a
// row of fair_turn says when the tenant is next served. Throttled tenants are served in order of fair_turn.due_at, so one with little due never waits
// behind one with much. Time in the queue is not missed: a cohort's run begins when it is queued. A halted or suspended tenant is queued
// too, but no run begins, and its missed policy applies when it returns. A change of a quota counts from the tenant's next turn on.
const (
	share       = 2000            // ticks of a tenant that are swept of one shard before it is queued
	turnTicks   = 2000            // ticks of a sweep that are reserved for turns
	mostTurns   = 16              // in one sweep
	stoppedLook = 5 * time.Minute // while a tenant is halted or suspended; the change that ends this wakes its turns
	mostStopped = 64              // tenants whose turns one sweep puts off for so long: each takes a lock
	pressedLook = 200 * time.Millisecond
	otherLook   = 300 * time.Millisecond
	mostOthers  = 300
)

// fairness is the memory of a process's sweeps about tenants.
type fairness struct {
	limiter  *limiter
	pressure *pressure
	queues   queues
	others   looks // for cohorts behind those of a large tenant
	pacer    pacer
}

// pressed reports whether so many chunks of a tenant are unopened that no more are swept.
func (f *fairness) pressed(tenant tenants.ID) bool { return f.pressure.of(tenant) >= mostUnopened }

// turns are what a pass decides of its tenants' turns.
type turns struct {
	next    map[tenants.ID]time.Time // when tenants are served next
	joined  map[tenants.ID]bool      // tenants of which cohorts joined the queue
	stopped []tenants.ID             // tenants that are halted or suspended
	over    []tenants.ID             // tenants whose queue is empty
	paced   map[workflowName]bool    // workflows of which cohorts wait for their rate now
}

// fresh sweeps cohorts whose time has come, up to room ticks. Cohorts of tenants that are queued join the queue.
func (p *pass) fresh(ctx context.Context, cohorts []*due, room int) error {
	p.again = p.again || len(cohorts) >= mostCohorts
	others, err := p.others(ctx, cohorts)
	if err != nil {
		return err
	}
	if cohorts, err = p.setAside(ctx, append(others, cohorts...)); err != nil {
		return err
	}
	if cohorts, err = p.pace(ctx, cohorts); err != nil {
		return err
	}
	cohorts, err = p.ready(ctx, cohorts)
	if err != nil || len(cohorts) == 0 {
		return err
	}
	var queue, now []*due
	want := map[tenants.ID]int{}
	for _, c := range cohorts {
		if c.Waits || p.fair.pressed(c.TenantID) {
			c.fromPhase, c.fromID, _ = c.start()
			queue, want[c.TenantID] = append(queue, c), 0
		} else {
			now = append(now, c)
		}
	}
	members, read, err := p.readMembers(ctx, now, room, share)
	if err != nil {
		return err
	}
	for i, c := range now {
		want[c.TenantID] = min(share, want[c.TenantID]+len(members[i]))
	}
	grants, err := p.fair.limiter.take(ctx, want, false)
	if err != nil {
		return err
	}
	p.made.ticks, p.again = p.made.ticks+read, p.again || read >= room
	for _, c := range queue {
		p.enqueue(c, grants[c.TenantID], p.fair.pressed(c.TenantID))
	}
	p.sendGranted(now, members, grants)
	p.made.moved = append(p.made.moved, now...)
	p.made.moved = append(p.made.moved, queue...)
	return nil
}

// sendGranted sends the members of cohorts as far as their tenants' grants go, and returns what is left of the grants to the rate
// limiter. A cohort with members beyond its tenant's grant joins the queue.
func (p *pass) sendGranted(cohorts []*due, members [][]chunk.Member, grants map[tenants.ID]grant) {
	left := make(map[tenants.ID]int, len(grants))
	for tenant, g := range grants {
		left[tenant] = g.n
	}
	for i, c := range cohorts {
		if !c.begun {
			continue
		}
		g, n := grants[c.TenantID], min(len(members[i]), left[c.TenantID])
		if g.stopped {
			n = 0
		}
		left[c.TenantID] -= n
		if g.stopped || n < len(members[i]) {
			c.keep(members[i], n)
			p.enqueue(c, g, false)
		} else if c.cut {
			p.enqueue(c, g, false)
		}
		p.send(c, members[i][:n])
	}
	for tenant, n := range left {
		if n > 0 {
			p.fair.limiter.refund(tenant, n)
		}
	}
}

// others reads due cohorts of other tenants than the one that has most of a full batch: they may be far behind it. It does so a few
// times a second.
func (p *pass) others(ctx context.Context, cohorts []*due) ([]*due, error) {
	if len(cohorts) < mostCohorts {
		return nil, nil
	}
	count := map[tenants.ID]int{}
	hog := cohorts[0].TenantID
	for _, c := range cohorts {
		if count[c.TenantID]++; count[c.TenantID] > count[hog] {
			hog = c.TenantID
		}
	}
	if count[hog] < len(cohorts)/2 || !p.fair.others.due(p.shard) {
		return nil, nil
	}
	var known []int64
	for _, c := range cohorts {
		known = append(known, c.ID)
	}
	rows, _ := p.tx.Query(ctx, `
		SELECT `+DueColumns+`
		FROM cohort c
		WHERE c.shard = $1 AND c.due_at BETWEEN $6 AND $2 AND c.tenant_id <> $3 AND c.id <> ALL ($4)
		ORDER BY c.due_at
		LIMIT $5`, p.shard, p.now, hog, known, mostOthers, p.from.Cohort.From) // ForEachRow reports the error
	found, err := collectDue(rows)
	if err != nil {
		return nil, fmt.Errorf("read due cohorts of others: %w", err)
	}
	return found, nil
}

// enqueue lets a cohort wait for its tenant's turn; pressed: its tenant has too many unopened chunks.
func (p *pass) enqueue(c *due, g grant, pressed bool) {
	if c.AtID == nil || !c.begun {
		c.keep(nil, 0)
	}
	c.waits, c.stopped = true, g.stopped
	p.turns.joined[c.TenantID] = true
	if c.Waits {
		return
	}
	next := p.now
	switch {
	case g.stopped:
		next, p.turns.stopped = next.Add(record.ContendedWait), append(p.turns.stopped, c.TenantID)
	case pressed:
		next = next.Add(pressedLook)
	case g.n < share:
		next = next.Add(g.next)
	}
	p.turns.next[c.TenantID] = next
}

// serve gives tenants their turns, in their order, up to room ticks together.
func (p *pass) serve(ctx context.Context, turns []tenants.ID, room int) error {
	if len(turns) == 0 {
		return nil
	}
	each := max(1, room/len(turns))
	want := map[tenants.ID]int{}
	for _, tenant := range turns {
		if p.fair.pressed(tenant) {
			p.turns.next[tenant] = p.now.Add(pressedLook)
			continue
		}
		want[tenant] = each
	}
	grants, err := p.fair.limiter.take(ctx, want, true)
	if err != nil {
		return err
	}
	for _, tenant := range turns {
		g, asked := grants[tenant]
		switch {
		case !asked:
		case g.stopped:
			p.turns.next[tenant], p.turns.stopped = p.now.Add(record.ContendedWait), append(p.turns.stopped, tenant)
		case g.n == 0:
			p.turns.next[tenant] = p.now.Add(g.next)
		default:
			if err := p.serveOne(ctx, tenant, g, each); err != nil {
				return err
			}
		}
	}
	return nil
}

// serveOne gives a tenant its turn: up to the granted ticks of its queued cohorts, the longest queued first.
func (p *pass) serveOne(ctx context.Context, tenant tenants.ID, g grant, each int) error {
	limit := min(mostCohorts, g.n)
	cohorts, err := p.queueOf(ctx, tenant, limit)
	if err != nil {
		return err
	}
	queued := len(cohorts)
	if cohorts, err = p.setAside(ctx, cohorts); err != nil {
		return err
	}
	if cohorts, err = p.pace(ctx, cohorts); err != nil {
		return err
	}
	n := len(cohorts)
	if cohorts, err = p.ready(ctx, cohorts); err != nil {
		return err
	}
	left := queued == limit || len(cohorts) < n || p.turns.joined[tenant]
	members, _, err := p.readMembers(ctx, cohorts, g.n, g.n)
	if err != nil {
		return err
	}
	used := 0
	p.made.chunks.Herds[tenant] = true
	for i, c := range cohorts {
		used += len(members[i])
		p.send(c, members[i])
		if left = left || !c.begun || !c.whole; c.begun && !c.whole {
			c.keepRead()
			c.waits = true
		}
	}
	p.made.ticks += used
	p.made.moved = append(p.made.moved, cohorts...)
	p.fair.limiter.refund(tenant, g.n-used)
	switch {
	case !left:
		p.turns.over = append(p.turns.over, tenant)
	case used == g.n && g.n < each:
		p.turns.next[tenant] = p.now.Add(g.next)
	default:
		p.turns.next[tenant], p.again = p.now, true
	}
	return nil
}

// endTurns queues the statements that write the turns.
func (p *pass) endTurns(ctx context.Context) error {
	if len(p.turns.next)+len(p.turns.over) == 0 {
		return nil
	}
	if err := p.putOffStopped(ctx); err != nil {
		return err
	}
	var who []tenants.ID
	var at []time.Time
	for tenant, next := range p.turns.next {
		if who, at = append(who, tenant), append(at, next); !next.After(p.now) {
			p.again = true
		}
	}
	p.made.chunks.Along.Queue(`
		INSERT INTO fair_turn (shard, tenant_id, due_at)
		SELECT $1, tenant_id, `+cohorts.NotPast("due_at")+`
		FROM unnest($2::int[], $3::timestamptz[]) AS n (tenant_id, due_at)
		ON CONFLICT (shard, tenant_id) DO UPDATE SET due_at = excluded.due_at`, p.shard, who, at)
	p.made.chunks.Along.Queue(`DELETE FROM fair_turn WHERE shard = $1 AND tenant_id = ANY ($2::int[])`, p.shard, p.turns.over)
	return nil
}

// putOffStopped puts off the turns of halted or suspended tenants for long. The change that ends the stop wakes them after this sweep is
// committed, as it takes the same lock. It reads the tenants again under the lock, as an earlier reading may be out of date.
func (p *pass) putOffStopped(ctx context.Context) error {
	if len(p.turns.stopped) == 0 {
		return nil
	}
	slices.Sort(p.turns.stopped)
	p.turns.stopped = slices.Compact(p.turns.stopped)
	some := p.turns.stopped[:min(len(p.turns.stopped), mostStopped)]
	rows, _ := p.tx.Query(ctx, `SELECT id FROM unnest($2::int[]) AS n (id) WHERE pg_try_advisory_xact_lock_shared($1, id)`, postgres.ParkLocks, some) // CollectRows reports the error
	shared, err := pgx.CollectRows(rows, pgx.RowTo[tenants.ID])
	if err != nil {
		return fmt.Errorf("lock stopped tenants: %w", err)
	}
	rows, _ = p.tx.Query(ctx, `SELECT t.id FROM tenant t WHERE t.id = ANY ($1::int[]) AND `+tenants.Stopped, shared) // CollectRows reports the error
	stopped, err := pgx.CollectRows(rows, pgx.RowTo[tenants.ID])
	if err != nil {
		return fmt.Errorf("read stopped tenants: %w", err)
	}
	for _, tenant := range stopped {
		p.turns.next[tenant] = p.now.Add(stoppedLook + rand.N(stoppedLook))
	}
	return nil
}
