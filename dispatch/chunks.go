package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// chunks gathers what one transaction sweeps of one shard, and cuts it into rows.
type chunks struct {
	shard int16
	most  int // ticks in a chunk
	made  []newChunk
	ticks map[tenants.ID]int
	herds map[tenants.ID]bool // of whom more waits in line
	open  map[chunkKind]*newChunk
	along pgx.Batch // what else is written in the same round trip
}

// chunkKind is what the ticks of one chunk have in common: its tenant, and whether they go into the lane of what is late.
type chunkKind struct {
	tenant tenants.ID
	late   bool
}

type newChunk struct {
	chunkKind
	id        int64
	at        time.Time // the earliest nominal time
	kind      int16
	lane      string
	groups    []group
	tries     []try
	count     int
	workflows []string
}

// A tenant with no more due at once than this is served in the small lane.
const smallDue = 500

func newChunks(shard int16) *chunks {
	return &chunks{shard: shard, most: mostInChunk, ticks: map[tenants.ID]int{}, herds: map[tenants.ID]bool{}, open: map[chunkKind]*newChunk{}}
}

// source is a cohort whose run is swept into chunks.
type source struct {
	tenant   tenants.ID
	cohort   int64
	workflow string
	run      cohorts.Run
	dated    bool // its timing names calendars
}

// group returns the group, without members as yet, that a run of the cohort serves.
func (s source) group(run cohorts.Run) group {
	g := groupOf(s.cohort, run)
	g.Dated = s.dated
	return g
}

// addMembers adds the members of a cohort that its run serves: chunks mix cohorts and nominal times of one tenant, since what
// a chunk costs to open hardly depends on how little it holds.
func (cs *chunks) addMembers(of source, members []member) {
	members = slices.DeleteFunc(members, func(m member) bool {
		if m.own != nil {
			cs.add(of.tenant, of.workflow, of.group(*m.own), []member{m})
		}
		return m.own != nil
	})
	slices.SortFunc(members, func(a, b member) int { return cmp.Or(cmp.Compare(a.missed, b.missed), cmp.Compare(a.id, b.id)) })
	for len(members) > 0 {
		alike := slices.IndexFunc(members, func(m member) bool { return m.missed != members[0].missed })
		if alike < 0 {
			alike = len(members)
		}
		cs.add(of.tenant, of.workflow, of.group(of.run), members[:alike])
		members = members[alike:]
	}
}

// groupOf returns the group, without members as yet, that a run of a cohort serves.
func groupOf(cohort int64, run cohorts.Run) group {
	return group{Cohort: cohort, At: run.At, DST: run.DST, Late: run.Late, Drop: run.Drop, Quiet: run.Quiet}
}

// add adds members that have missed the same number of ticks, as parts of a group.
func (cs *chunks) add(tenant tenants.ID, workflow string, of group, alike []member) {
	kind := chunkKind{tenant, of.Late}
	cs.ticks[tenant] += len(alike)
	for len(alike) > 0 {
		chunk := cs.open[kind]
		if chunk == nil {
			chunk = &newChunk{chunkKind: kind, kind: firstTries, at: of.At}
			cs.open[kind] = chunk
		}
		if of.At.Before(chunk.at) {
			chunk.at = of.At
		}
		n := min(len(alike), cs.most-chunk.count)
		g := of
		g.Workflow, g.Missed, g.IDs = chunk.workflow(workflow), alike[0].missed, make([]int64, n)
		if sabotage.MissedUncounted.On() {
			g.Missed = 0
		}
		for i, m := range alike[:n] {
			g.IDs[i] = m.id
		}
		chunk.groups, chunk.count = append(chunk.groups, g), chunk.count+n
		if chunk.count == cs.most {
			cs.made = append(cs.made, *chunk)
			delete(cs.open, kind)
		}
		alike = alike[n:]
	}
}

func (c *newChunk) workflow(name string) int {
	if i := slices.Index(c.workflows, name); i >= 0 {
		return i
	}
	c.workflows = append(c.workflows, name)
	return len(c.workflows) - 1
}

// addTries adds ticks of a tenant that are to be sent again.
func (cs *chunks) addTries(tenant tenants.ID, tries []try) {
	slices.SortFunc(tries, func(a, b try) int { return a.Compare(b.TickKey) })
	for part := range slices.Chunk(tries, mostAttempts) {
		cs.made = append(cs.made, newChunk{
			chunkKind: chunkKind{tenant: tenant}, at: part[0].At, kind: laterTries, lane: catchUpLane,
			tries: part, count: len(part), workflows: []string{},
		})
	}
}

// insert writes the chunks, gives them their numbers, and writes what goes along with them.
func (cs *chunks) insert(ctx context.Context, tx pgx.Tx) ([]newChunk, error) {
	for _, chunk := range cs.open {
		cs.made = append(cs.made, *chunk)
	}
	clear(cs.open)
	if len(cs.made) == 0 {
		return nil, cs.write(ctx, tx)
	}
	slices.SortStableFunc(cs.made, func(a, b newChunk) int { return a.at.Compare(b.at) })
	n := len(cs.made)
	owners, kinds, lanes, nominal := make([]int32, n), make([]int16, n), make([]string, n), make([]time.Time, n)
	first, last, counts, items := make([]int64, n), make([]int64, n), make([]int32, n), make([][]byte, n)
	for i := range cs.made {
		c := &cs.made[i]
		switch {
		case c.kind == laterTries:
			first[i], last[i], items[i] = c.tries[0].Schedule, c.tries[len(c.tries)-1].Schedule, packTries(c.tries)
		default:
			first[i], last[i] = bounds(c.groups)
			items[i], c.lane = packGroups(c.at, c.groups), largeLane
			if cs.ticks[c.tenant] <= smallDue && !cs.herds[c.tenant] {
				c.lane = smallLane
			}
			if c.late {
				c.lane = catchUpLane
			}
		}
		owners[i], kinds[i], lanes[i], nominal[i], counts[i] = int32(c.tenant), c.kind, c.lane, c.at, int32(c.count)
	}
	var ids []int64 // in the order of the rows: one VALUES-like source, no join
	cs.along.Queue(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows)
		SELECT $1, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, `+postgres.Now+`, string_to_array(workflows, ',')
		FROM unnest($2::int[], $3::smallint[], $4::text[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::int[], $9::bytea[], $10::text[])
			AS n (tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows)
		WHERE pg_current_xact_id() IS NOT NULL -- comes first: a transaction has its own number before it takes those of chunks
		RETURNING id`,
		cs.shard, owners, kinds, lanes, nominal, first, last, counts, items, cs.joined()).Query(func(rows pgx.Rows) (err error) {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err := cs.write(ctx, tx); err != nil {
		return nil, err
	}
	for i := range cs.made {
		cs.made[i].id = ids[i]
	}
	return cs.made, nil
}

// write writes what was queued, in one round trip.
func (cs *chunks) write(ctx context.Context, tx pgx.Tx) error {
	err := tx.SendBatch(ctx, &cs.along).Close()
	cs.along = pgx.Batch{}
	if err != nil {
		return fmt.Errorf("write what was swept: %w", err)
	}
	return nil
}

// joined are the workflows of each chunk in one text: no name holds a comma, and unnest would flatten arrays.
func (cs *chunks) joined() []string {
	all := make([]string, len(cs.made))
	for i, c := range cs.made {
		for j, name := range c.workflows {
			if j > 0 {
				all[i] += ","
			}
			all[i] += name
		}
	}
	return all
}

func bounds(groups []group) (first, last int64) {
	first = groups[0].IDs[0]
	for _, g := range groups {
		first, last = min(first, g.IDs[0]), max(last, g.IDs[len(g.IDs)-1])
	}
	return first, last
}

// member is a member of a cohort as the sweep reads it.
type member struct {
	id, spread int64
	missed     int
	own        *cohorts.Run // where its last time came before the run's
}
