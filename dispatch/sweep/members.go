package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
)

// readMembers reads the members of the cohorts past their cursors, cohort after cohort, until most are read: at most each of one cohort.
// It leaves out members to which the run's nominal time does not count.
func (p *pass) readMembers(ctx context.Context, cohorts []*due, most, each int) (members [][]chunk.Member, read int, err error) {
	found, err := p.findMembers(ctx, cohorts, most, each)
	if err != nil {
		return nil, 0, fmt.Errorf("read members: %w", err)
	}
	members = make([][]chunk.Member, len(cohorts))
	all, phases, nowhere := make([]chunk.Member, 0, len(found.ids)), found.phases, new(int64)
	reached, began, ofOne := 0, 0, 0
	for row, id := range found.ids {
		i := int(found.cohorts[row]) - 1
		if i < reached {
			return nil, 0, errors.New("read members: they came out of order")
		}
		phase := nowhere
		if cohorts[i].jitters() {
			phase, phases = &phases[0], phases[1:]
		}
		if i > reached {
			reached, began, ofOne = i, len(all), 0
		}
		if read++; read > most {
			break
		}
		c := cohorts[i]
		if ofOne++; ofOne > each {
			c.cut = true
			continue
		}
		c.AtPhase, c.AtID = phase, &found.ids[row]
		m := chunk.Member{ID: id, Phase: *phase, Missed: c.run.Missed}
		if counted, limited := found.limits[id]; limited {
			own, counts := c.run.For(c.timing, counted.from, counted.until)
			if !counts {
				continue
			}
			if m.Missed = own.Missed; !own.At.Equal(c.run.At) || own.Late != c.run.Late {
				m.Own = &own
			}
		}
		all = append(all, m)
		members[i] = all[began:len(all):len(all)]
	}
	for i, c := range cohorts {
		c.begun = read <= most || i <= reached
		c.whole = (read <= most || i < reached) && !c.cut
		c.empty = c.whole && c.RunAt == nil && c.AtID == nil
	}
	return members, min(read, most), nil
}

// foundMembers are members in reading order, as columns.
type foundMembers struct {
	cohorts []int32 // the index of each member's cohort, from 1 on
	ids     []int64
	phases  []int64          // of the members of cohorts with jitter; others have none
	limits  map[int64]counts // of members to which not the whole run counts
}

// counts is the period in which nominal times count for a member. A nil until means no end.
type counts struct {
	from  time.Time
	until *time.Time
}

// jitters reports whether the cohort's timing has a jitter: then phase is a hash of each member. In other cohorts phase is 0.
func (c *due) jitters() bool { return c.timing.Jitter() > 0 }

func (p *pass) findMembers(ctx context.Context, cohorts []*due, most, each int) (f foundMembers, err error) {
	var ords, owners []int32
	var ids, phases, after, upto []int64
	var froms []time.Time
	var jitters []bool
	for i, c := range cohorts {
		var last int64
		c.fromPhase, c.fromID, last = c.start()
		if c.known() {
			continue
		}
		ords, ids, owners, froms = append(ords, int32(i+1)), append(ids, c.ID), append(owners, int32(c.TenantID)), append(froms, c.run.From)
		phases, after, upto, jitters = append(phases, c.fromPhase), append(after, c.fromID), append(upto, last), append(jitters, c.jitters())
	}
	if len(ids) == 0 {
		f.addKnown(cohorts)
		return f, nil
	}
	var limited []int64
	var from []time.Time
	var until []*time.Time
	// A LATERAL with a LIMIT leaves the planner only a nested loop over the cohorts in the given order. The result is arrays in that order,
	// which cost a fraction of rows. The limits are separate arrays, because nearly no member has one.
	err = p.tx.QueryRow(ctx, `
		SELECT array_agg(f.ord), array_agg(f.schedule_id), array_agg(f.phase) FILTER (WHERE f.jitters),
			array_agg(f.schedule_id) FILTER (WHERE f.limited), array_agg(f.from_at) FILTER (WHERE f.limited), array_agg(f.until_at) FILTER (WHERE f.limited)
		FROM (
			SELECT c.ord, c.jitters, m.phase, m.schedule_id, m.from_at, m.until_at, m.until_at IS NOT NULL OR m.from_at > c.run_from AS limited
			FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $6::bigint[], $8::timestamptz[], $9::boolean[], $10::int[])
				AS c (id, phase, after, tenant_id, upto, run_from, jitters, ord)
			CROSS JOIN LATERAL (
				SELECT phase, schedule_id, from_at, until_at
				FROM member
				WHERE cohort_id = c.id AND tenant_id = c.tenant_id AND (phase, schedule_id) > (c.phase, c.after) AND phase <= c.upto
				ORDER BY phase, schedule_id
				LIMIT $7
			) m
			LIMIT $5
		) f`, ids, phases, after, owners, most+1, upto, each+1, froms, jitters, ords).Scan(&f.cohorts, &f.ids, &f.phases, &limited, &from, &until)
	if err != nil {
		return f, err
	}
	f.limits = make(map[int64]counts, len(limited))
	for i, id := range limited {
		f.limits[id] = counts{from[i], until[i]}
	}
	f.addKnown(cohorts)
	return f, nil
}

// known reports whether all members that a cohort's run serves were read along with the cohort.
func (c *due) known() bool {
	return c.RunAt == nil && !c.jitters() && (c.members == noMember || c.members == oneMember)
}

// addKnown inserts the members that were read along with their cohorts between the others, in the order of the cohorts.
func (f *foundMembers) addKnown(cohorts []*due) {
	n := len(f.ids)
	for _, c := range cohorts {
		if c.known() {
			n += c.members
		}
	}
	if n == len(f.ids) {
		return
	}
	if f.limits == nil {
		f.limits = map[int64]counts{}
	}
	numbers, ids, rest := make([]int32, 0, n), make([]int64, 0, n), 0
	for i, c := range cohorts {
		if !c.known() {
			for ; rest < len(f.ids) && int(f.cohorts[rest]) == i+1; rest++ {
				numbers, ids = append(numbers, f.cohorts[rest]), append(ids, f.ids[rest])
			}
			continue
		}
		if c.members == noMember {
			continue
		}
		numbers, ids = append(numbers, int32(i+1)), append(ids, c.first.ID)
		if c.counts.until != nil || c.counts.from.After(c.run.From) {
			f.limits[c.first.ID] = c.counts
		}
	}
	f.cohorts, f.ids = numbers, ids
}

// start returns where reading the members of a cohort begins, at its cursor or at the beginning of its run, and up to which phase it goes.
func (c *due) start() (phase, id, upto int64) {
	switch {
	case c.leg != nil:
		return c.leg.After, c.leg.AfterID, c.leg.Upto
	case c.RunAt != nil:
		return *c.AtPhase, *c.AtID, math.MaxInt64
	}
	return math.MinInt64, -1, math.MaxInt64
}

// keep moves the cursor of a cohort behind the first n of the members that were read: only these are swept.
func (c *due) keep(members []chunk.Member, n int) {
	c.whole, c.begun, c.ahead = false, true, nil
	c.AtPhase, c.AtID = new(c.fromPhase), new(c.fromID)
	if n > 0 {
		c.AtPhase, c.AtID = new(members[n-1].Phase), new(members[n-1].ID)
	}
}

// keepRead leaves the cursor of a cohort where reading ended.
func (c *due) keepRead() {
	if c.AtID == nil {
		c.AtPhase, c.AtID = new(c.fromPhase), new(c.fromID)
	}
}
