package sweep

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/rate"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// A cohort of a workflow with a rate is paced: when it is due its run begins, and it waits with due_at = infinity until its workflow
// hands out ticks. A row of rate_turn says when that is. Paced cohorts are served in the order of their nominal times, over all shards
// (pacer.go).

// pace lets cohorts of workflows with a rate wait for it, and returns the others. Cohorts of a halted or suspended tenant wait for their
// tenant.
func (p *pass) pace(ctx context.Context, all []*due) (others []*due, err error) {
	if !p.aside.rated || len(all) == 0 {
		return all, nil
	}
	rated, err := p.workflowsWith(ctx, `rate IS NOT NULL`, all)
	if err != nil {
		return nil, fmt.Errorf("read rates of workflows: %w", err)
	}
	if len(rated) == 0 {
		return all, nil
	}
	var paced []*due
	others = all[:0]
	for _, c := range all {
		if rated[workflowName{c.TenantID, string(c.Workflow)}] {
			paced = append(paced, c)
		} else {
			others = append(others, c)
		}
	}
	if paced, err = p.ready(ctx, paced); err != nil || len(paced) == 0 {
		return others, err
	}
	want := map[tenants.ID]int{}
	for _, c := range paced {
		want[c.TenantID] = 0
	}
	grants, err := p.fair.limiter.take(ctx, want, false)
	if err != nil {
		return nil, err
	}
	for _, c := range paced {
		c.fromPhase, c.fromID, _ = c.start()
		if g := grants[c.TenantID]; g.stopped {
			p.enqueue(c, g, false)
			continue
		}
		p.letPace(c)
	}
	p.made.moved = append(p.made.moved, paced...)
	return others, nil
}

// letPace lets a cohort wait for the rate of its workflow.
func (p *pass) letPace(c *due) {
	if c.AtID == nil || !c.begun {
		c.keep(nil, 0)
	}
	c.waits, c.paced = true, true
	if p.turns.paced == nil {
		p.turns.paced = map[workflowName]bool{}
	}
	p.turns.paced[workflowName{c.TenantID, string(c.Workflow)}] = true
}

// queueRateTurns queues the statement that gives a turn at once to the workflows of which cohorts began to wait.
func (p *pass) queueRateTurns() {
	if len(p.turns.paced) == 0 {
		return
	}
	var owners []int32
	var names []string
	for name := range p.turns.paced {
		owners, names = append(owners, int32(name.tenant)), append(names, name.name)
	}
	p.made.chunks.Along.Queue(`
		INSERT INTO rate_turn (tenant_id, workflow, due_at)
		SELECT tenant_id, workflow, `+cohorts.NotPast("$3::timestamptz")+`
		FROM unnest($1::int[], $2::text[]) AS n (tenant_id, workflow)
		ORDER BY tenant_id, workflow
		ON CONFLICT DO NOTHING`, owners, names, p.now)
}

// servePaced serves a workflow whose first cohort is in the shard, as far as the tokens of its rate and of its tenant go, and queues when
// it is served next. more: there may be more to serve at once.
func (p *pass) servePaced(ctx context.Context, of workflowName, head pacedHead) (more bool, err error) {
	r, err := workflowRate(ctx, p.tx, of)
	if err != nil {
		return false, err
	}
	name := rate.Name{Tenant: of.tenant, Kind: rate.Workflow, Name: of.name}
	bucket, most, wait := rate.Bucket{}, mostTicks, time.Duration(0)
	if r.PerSecond > 0 {
		if bucket, err = rate.Lock(ctx, p.tx, name, r); err != nil {
			return false, err
		}
		most, wait = min(mostTicks, bucket.Whole()), max(rateLook, bucket.Wait(r))
	}
	longest := mostRateWait
	if p.fair.pressed(of.tenant) {
		most, wait = 0, pressedLook
	}
	if most > 0 {
		used, found, g, err := p.sendPaced(ctx, of, head, most)
		if err != nil {
			return false, err
		}
		bucket.Spend(used)
		switch {
		case g.stopped:
			longest = stoppedRate + rand.N(stoppedRate)
			wait = longest
		case used == g.n && g.n < most:
			wait = max(rateLook, g.next)
		case used < most || r.PerSecond == 0:
			wait, more = 0, found > 0
		}
	}
	if err := p.end(ctx); err != nil {
		return false, err
	}
	if r.PerSecond > 0 {
		rate.QueueStore(&p.made.chunks.Along, name, bucket)
	}
	p.made.chunks.Along.Queue(`UPDATE rate_turn SET due_at = `+cohorts.NotPast("$3::timestamptz")+` WHERE tenant_id = $1 AND workflow = $2`,
		of.tenant, of.name, p.now.Add(min(wait, longest)))
	return more, nil
}

// sendPaced sends up to most ticks of paced cohorts of one workflow in the shard, the earliest nominal time first, as far as the tenant's
// tokens go. It returns how many it sent, and how many cohorts it found.
func (p *pass) sendPaced(ctx context.Context, of workflowName, head pacedHead, most int) (used, found int, g grant, err error) {
	grants, err := p.fair.limiter.take(ctx, map[tenants.ID]int{of.tenant: most}, true)
	if err != nil {
		return 0, 0, g, err
	}
	if g = grants[of.tenant]; g.stopped || g.n == 0 {
		return 0, 0, g, nil
	}
	all, err := p.pacedOf(ctx, of, head, min(g.n, mostCohorts))
	if err != nil {
		return 0, 0, g, err
	}
	found = len(all)
	if all, err = p.setAside(ctx, all); err != nil {
		return 0, found, g, err
	}
	if all, err = p.ready(ctx, all); err != nil {
		return 0, found, g, err
	}
	members, _, err := p.readMembers(ctx, all, g.n, g.n)
	if err != nil {
		return 0, found, g, err
	}
	for i, c := range all {
		used += len(members[i])
		p.send(c, members[i])
		if c.begun && !c.whole {
			c.keepRead()
			c.waits, c.paced = true, true
		}
	}
	p.made.ticks += used
	p.made.moved = append(p.made.moved, all...)
	p.fair.limiter.refund(of.tenant, g.n-used)
	return used, found, g, nil
}

// pacedOf reads the paced cohorts of a workflow in the shard whose nominal times are at most a little after the first one's.
func (p *pass) pacedOf(ctx context.Context, of workflowName, head pacedHead, limit int) ([]*due, error) {
	rows, _ := p.tx.Query(ctx, `
		SELECT `+DueColumns+`
		FROM cohort c
		WHERE c.tenant_id = $2 AND c.workflow = $3 AND c.paced AND c.run_at BETWEEN $5 AND $5::timestamptz + $6::interval AND c.shard = $1
		ORDER BY c.run_at, c.shard, c.id
		LIMIT $4`, p.shard, of.tenant, of.name, limit, head.at, pacedTogether) // ForEachRow reports the error
	found, err := collectDue(rows)
	if err != nil {
		return nil, fmt.Errorf("read paced cohorts: %w", err)
	}
	return found, nil
}

// workflowRate reads the rate of a workflow; a rate of 0 is none.
func workflowRate(ctx context.Context, tx pgx.Tx, of workflowName) (r rate.Rate, err error) {
	var perSecond, ramp *int32
	err = tx.QueryRow(ctx, `SELECT w.rate, w.ramp_s FROM (SELECT) one LEFT JOIN workflow w ON w.tenant_id = $1 AND w.name = $2`, of.tenant, of.name).Scan(&perSecond, &ramp)
	if err != nil {
		return r, fmt.Errorf("read the rate of a workflow: %w", err)
	}
	return rate.Of(perSecond, ramp), nil
}
