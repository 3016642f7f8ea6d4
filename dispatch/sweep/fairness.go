package sweep

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Of a tenant of whom more is due than its share, than its tokens or than is opened of it, the cohorts of a shard wait in
// line: due_at is infinity, wait_at is since when. A row of turn says when its tenant is looked at next; those whose time
// has come are served in that order, the one first that was served longest ago. So who has little due is swept by due_at
// alone, at no cost; a cohort is moved into the line once, however long that is; and a tenant's quota counts from the next
// turn on. A run begins when its cohort comes into the line: what it waits there is not missed. While a tenant is halted
// or suspended none begins, and what is past by its return follows missed.
const (
	share       = 2000            // ticks that a tenant has swept of one shard before it waits for its turn
	turnTicks   = 2000            // of a sweep that are left to turns, however much else is due
	mostTurns   = 16              // in one sweep
	stoppedLook = 5 * time.Minute // while a tenant is halted or suspended; the change that ends this wakes its turns
	mostStopped = 64              // tenants whose turns are put off so long in one sweep: each takes a lock
	pressedLook = 200 * time.Millisecond
	otherLook   = 300 * time.Millisecond
	mostOthers  = 300
)

// pass is one sweep of a shard under its lock.
type pass struct {
	*Sweeper
	tx     pgx.Tx
	shard  int16
	now    time.Time
	chunks *chunk.Batch
	from   dueLook // where reading began

	moved []*due
	ticks int
	turns map[tenants.ID]time.Time // when tenants are looked at next
	lined map[tenants.ID]bool      // of whom cohorts came into the line
	stops []tenants.ID             // tenants who were found to be halted or suspended
	over  []tenants.ID             // of whom none is left in it
	again bool                     // there may be more to do at once

	delayed []*due // with fixed_delay, of whom ticks go out, and of which members
	outs    [][]chunk.Member
}

// send puts members of a cohort into chunks.
func (p *pass) send(c *due, members []chunk.Member) {
	p.chunks.AddMembers(c.source(), members)
	if _, delays := c.timing.FixedDelay(); delays {
		p.delayed, p.outs = append(p.delayed, c), append(p.outs, members)
	}
}

// fresh sweeps cohorts whose time has come, up to room ticks. The cohorts of tenants that wait for their turn come into the line.
func (p *pass) fresh(ctx context.Context, cohorts []*due, room int) error {
	p.again = p.again || len(cohorts) >= mostCohorts
	others, err := p.others(ctx, cohorts)
	if err != nil {
		return err
	}
	cohorts, err = p.ready(ctx, append(others, cohorts...))
	if err != nil || len(cohorts) == 0 {
		return err
	}
	var line, now []*due
	want := map[tenants.ID]int{}
	for _, c := range cohorts {
		if c.Waits || p.pressure.of(c.TenantID) >= mostUnopened {
			c.fromSpread, c.fromID, _ = c.start()
			line, want[c.TenantID] = append(line, c), 0
		} else {
			now = append(now, c)
		}
	}
	members, read, err := readMembers(ctx, p.tx, now, room, share)
	if err != nil {
		return err
	}
	for i, c := range now {
		want[c.TenantID] = min(share, want[c.TenantID]+len(members[i]))
	}
	grants, err := p.purse.take(ctx, want, false)
	if err != nil {
		return err
	}
	p.ticks, p.again = p.ticks+read, p.again || read >= room
	for _, c := range line {
		p.enline(c, grants[c.TenantID], p.pressure.of(c.TenantID) >= mostUnopened)
	}
	p.sendGranted(now, members, grants)
	p.moved = append(p.moved, now...)
	p.moved = append(p.moved, line...)
	return nil
}

// sendGranted sends the members of cohorts as far as their tenants' grants go, and returns what is left of the grants to the rate
// limiter. A cohort with members beyond its tenant's grant comes into the line.
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
			p.enline(c, g, false)
		} else if c.cut {
			p.enline(c, g, false)
		}
		p.send(c, members[i][:n])
	}
	for tenant, n := range left {
		if n > 0 {
			p.purse.giveBack(tenant, n)
		}
	}
}

// ready has cohorts begin their runs, or go on with them; those that are timed anew are left out.
func (p *pass) ready(ctx context.Context, cohorts []*due) ([]*due, error) {
	cohorts, err := p.begin(ctx, p.tx, p.shard, p.now, cohorts)
	if err != nil || len(cohorts) == 0 {
		return nil, err
	}
	return p.retime(ctx, p.tx, p.shard, p.now, cohorts)
}

// others are due cohorts of other tenants than the one that has most of a full batch: they may lie far behind it. It is
// looked for them a few times a second.
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
	if count[hog] < len(cohorts)/2 || !p.otherLooks.due(p.shard) {
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

// keep leaves a cohort where it stands once n of the members that were read are swept.
func (c *due) keep(members []chunk.Member, n int) {
	c.whole, c.begun, c.ahead = false, true, nil
	c.AtSpread, c.AtID = new(c.fromSpread), new(c.fromID)
	if n > 0 {
		c.AtSpread, c.AtID = new(members[n-1].Spread), new(members[n-1].ID)
	}
}

// enline has a cohort wait for its tenant's turn.
func (p *pass) enline(c *due, g grant, pressed bool) {
	if c.AtID == nil || !c.begun {
		c.keep(nil, 0)
	}
	c.waits, c.stopped = true, g.stopped
	p.lined[c.TenantID] = true
	if c.Waits {
		return
	}
	next := p.now
	switch {
	case g.stopped:
		next, p.stops = next.Add(record.ContendedWait), append(p.stops, c.TenantID)
	case pressed:
		next = next.Add(pressedLook)
	case g.n < share:
		next = next.Add(g.next)
	}
	p.turns[c.TenantID] = next
}

// serve gives tenants their turns, in their order, up to room ticks together.
func (p *pass) serve(ctx context.Context, turns []tenants.ID, room int) error {
	if len(turns) == 0 {
		return nil
	}
	each := max(1, room/len(turns))
	want := map[tenants.ID]int{}
	for _, tenant := range turns {
		if p.pressure.of(tenant) >= mostUnopened {
			p.turns[tenant] = p.now.Add(pressedLook)
			continue
		}
		want[tenant] = each
	}
	grants, err := p.purse.take(ctx, want, true)
	if err != nil {
		return err
	}
	for _, tenant := range turns {
		g, asked := grants[tenant]
		switch {
		case !asked:
		case g.stopped:
			p.turns[tenant], p.stops = p.now.Add(record.ContendedWait), append(p.stops, tenant)
		case g.n == 0:
			p.turns[tenant] = p.now.Add(g.next)
		default:
			if err := p.serveOne(ctx, tenant, g, each); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *pass) serveOne(ctx context.Context, tenant tenants.ID, g grant, each int) error {
	limit := min(mostCohorts, g.n)
	cohorts, err := p.lineOf(ctx, tenant, limit)
	if err != nil {
		return err
	}
	n := len(cohorts)
	if cohorts, err = p.ready(ctx, cohorts); err != nil {
		return err
	}
	left := n == limit || len(cohorts) < n || p.lined[tenant]
	members, _, err := readMembers(ctx, p.tx, cohorts, g.n, g.n)
	if err != nil {
		return err
	}
	used := 0
	p.chunks.Herds[tenant] = true
	for i, c := range cohorts {
		used += len(members[i])
		p.send(c, members[i])
		if left = left || !c.begun || !c.whole; c.begun && !c.whole {
			c.keepRead()
			c.waits = true
		}
	}
	p.ticks += used
	p.moved = append(p.moved, cohorts...)
	p.purse.giveBack(tenant, g.n-used)
	switch {
	case !left:
		p.over = append(p.over, tenant)
	case used == g.n && g.n < each:
		p.turns[tenant] = p.now.Add(g.next)
	default:
		p.turns[tenant], p.again = p.now, true
	}
	return nil
}

// keepRead leaves a cohort where reading it ended.
func (c *due) keepRead() {
	if c.AtID == nil {
		c.AtSpread, c.AtID = new(c.fromSpread), new(c.fromID)
	}
}

// end has it written down, along with the chunks, where the cohorts and the turns of the shard stand.
func (p *pass) end(ctx context.Context) error {
	over, err := markOut(ctx, p.tx, p.delayed, p.outs)
	if err != nil {
		return err
	}
	if len(p.moved) > 0 {
		if err := lookAhead(ctx, p.tx, p.moved); err != nil {
			return err
		}
		advance(&p.chunks.Along, p.shard, p.now, p.moved)
	}
	record.QueueOver(&p.chunks.Along, p.shard, over) // after advance, which finds rows by where they are
	if len(p.turns)+len(p.over) == 0 {
		return nil
	}
	if err := p.putOffStopped(ctx); err != nil {
		return err
	}
	var who []tenants.ID
	var at []time.Time
	for tenant, next := range p.turns {
		if who, at = append(who, tenant), append(at, next); !next.After(p.now) {
			p.again = true
		}
	}
	p.chunks.Along.Queue(`
		INSERT INTO turn (shard, tenant_id, due_at)
		SELECT $1, tenant_id, `+cohorts.NotPast("due_at")+`
		FROM unnest($2::int[], $3::timestamptz[]) AS n (tenant_id, due_at)
		ON CONFLICT (shard, tenant_id) DO UPDATE SET due_at = excluded.due_at`, p.shard, who, at)
	p.chunks.Along.Queue(`DELETE FROM turn WHERE shard = $1 AND tenant_id = ANY ($2::int[])`, p.shard, p.over)
	return nil
}

// putOffStopped puts off the turns of tenants who are halted or suspended for long. Whoever changes that wakes them once this sweep is
// committed, as it shares the lock. What was read of a tenant before may be out of date, so it is read again.
func (p *pass) putOffStopped(ctx context.Context) error {
	if len(p.stops) == 0 {
		return nil
	}
	slices.Sort(p.stops)
	p.stops = slices.Compact(p.stops)
	some := p.stops[:min(len(p.stops), mostStopped)]
	rows, _ := p.tx.Query(ctx, `SELECT id FROM unnest($2::int[]) AS n (id) WHERE pg_try_advisory_xact_lock_shared($1, id)`, record.ParkLocks, some) // CollectRows reports the error
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
		p.turns[tenant] = p.now.Add(stoppedLook + rand.N(stoppedLook))
	}
	return nil
}

// start is where reading the members of a cohort begins: its cursor, or the beginning of its run.
func (c *due) start() (spread, id, upto int64) {
	switch {
	case c.leg != nil:
		return c.leg.After, c.leg.AfterID, c.leg.Upto
	case c.RunAt != nil:
		return *c.AtSpread, *c.AtID, math.MaxInt64
	}
	return math.MinInt64, -1, math.MaxInt64
}
