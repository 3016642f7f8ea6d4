package chunk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/trace"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Batch gathers the due members and attempts that one transaction sweeps of one shard, and cuts them into chunks.
type Batch struct {
	shard int16
	Most  int // ticks in a chunk
	Made  []Draft
	ticks map[tenants.ID]int
	Herds map[tenants.ID]bool // tenants that have more due than this batch holds
	open  map[Class]*Draft
	began time.Time
	Along pgx.Batch // other statements of the same round trip

	Traces *trace.Tracer // makes a span of each chunk of first tries; may be nil
}

// Class is what the ticks of one chunk have in common: the tenant, and whether they are late and go into the catch-up lane.
type Class struct {
	Tenant tenants.ID
	late   bool
}

// Draft is a chunk before it is written.
type Draft struct {
	Class
	ID        int64
	at        time.Time // the earliest nominal time
	Kind      int16
	Lane      string
	groups    []Group
	tries     []record.Try
	Count     int
	workflows []string
	span      *trace.Span
}

// A tenant with at most smallDue ticks in a batch is served in the small lane.
const smallDue = 500

// NewBatch returns an empty Batch of a shard.
func NewBatch(shard int16) *Batch {
	return &Batch{shard: shard, Most: mostInChunk, ticks: map[tenants.ID]int{}, Herds: map[tenants.ID]bool{}, open: map[Class]*Draft{}, began: time.Now()}
}

// Source is a cohort whose run is swept into chunks.
type Source struct {
	Tenant   tenants.ID
	Cohort   int64
	Workflow string
	Run      runs.Run
	Dated    bool // its timing names calendars
}

// group returns a group without members of a run of the cohort.
func (s Source) group(run runs.Run) Group {
	g := GroupOf(s.Cohort, run)
	g.Dated = s.Dated
	return g
}

// AddMembers adds the members of a cohort that its run serves. Chunks mix cohorts and nominal times of one tenant, because a chunk
// with few ticks costs nearly as much to open as a full one.
func (cs *Batch) AddMembers(of Source, members []Member) {
	members = slices.DeleteFunc(members, func(m Member) bool {
		if m.Own != nil {
			cs.Add(of.Tenant, of.Workflow, of.group(*m.Own), []Member{m})
		}
		return m.Own != nil
	})
	slices.SortFunc(members, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Missed, b.Missed), cmp.Compare(a.ID, b.ID)) })
	for len(members) > 0 {
		alike := slices.IndexFunc(members, func(m Member) bool { return m.Missed != members[0].Missed })
		if alike < 0 {
			alike = len(members)
		}
		cs.Add(of.Tenant, of.Workflow, of.group(of.Run), members[:alike])
		members = members[alike:]
	}
}

// GroupOf returns a group without members of a run of a cohort.
func GroupOf(cohort int64, run runs.Run) Group {
	return Group{Cohort: cohort, At: run.At, DST: run.DST, Late: run.Late, Drop: run.Drop, Quiet: run.Quiet}
}

// Add adds members that have missed the same number of ticks to chunks. of is their group, without members.
func (cs *Batch) Add(tenant tenants.ID, workflow string, of Group, alike []Member) {
	kind := Class{tenant, of.Late}
	cs.ticks[tenant] += len(alike)
	for len(alike) > 0 {
		chunk := cs.open[kind]
		if chunk == nil {
			chunk = &Draft{Class: kind, Kind: FirstTries, at: of.At}
			cs.open[kind] = chunk
		}
		if of.At.Before(chunk.at) {
			chunk.at = of.At
		}
		n := min(len(alike), cs.Most-chunk.Count)
		g := of
		g.Workflow, g.Missed, g.IDs = chunk.workflow(workflow), alike[0].Missed, make([]int64, n)
		if sabotage.MissedUncounted.On() {
			g.Missed = 0
		}
		for i, m := range alike[:n] {
			g.IDs[i] = m.ID
		}
		chunk.groups, chunk.Count = append(chunk.groups, g), chunk.Count+n
		if chunk.Count == cs.Most {
			cs.Made = append(cs.Made, *chunk)
			delete(cs.open, kind)
		}
		alike = alike[n:]
	}
}

func (c *Draft) workflow(name string) int {
	if i := slices.Index(c.workflows, name); i >= 0 {
		return i
	}
	c.workflows = append(c.workflows, name)
	return len(c.workflows) - 1
}

// AddTries adds attempts at ticks of a tenant that are due again.
func (cs *Batch) AddTries(tenant tenants.ID, tries []record.Try) {
	slices.SortFunc(tries, func(a, b record.Try) int { return a.Compare(b.TickKey) })
	for part := range slices.Chunk(tries, mostAttempts) {
		cs.Made = append(cs.Made, Draft{
			Class: Class{Tenant: tenant}, at: part[0].At, Kind: LaterTries, Lane: CatchUpLane,
			tries: part, Count: len(part), workflows: []string{},
		})
	}
}

// Insert writes the chunks and the statements of Along, and returns the chunks with their numbers.
func (cs *Batch) Insert(ctx context.Context, tx pgx.Tx) ([]Draft, error) {
	for _, chunk := range cs.open {
		cs.Made = append(cs.Made, *chunk)
	}
	clear(cs.open)
	if len(cs.Made) == 0 {
		return nil, cs.Write(ctx, tx)
	}
	slices.SortStableFunc(cs.Made, func(a, b Draft) int { return a.at.Compare(b.at) })
	n := len(cs.Made)
	owners, kinds, lanes, nominal := make([]int32, n), make([]int16, n), make([]string, n), make([]time.Time, n)
	first, last, counts, items := make([]int64, n), make([]int64, n), make([]int32, n), make([][]byte, n)
	for i := range cs.Made {
		c := &cs.Made[i]
		switch {
		case c.Kind == LaterTries:
			first[i], last[i], items[i] = c.tries[0].Schedule, c.tries[len(c.tries)-1].Schedule, PackTries(c.tries)
		default:
			first[i], last[i] = bounds(c.groups)
			items[i], c.Lane = PackGroups(c.at, c.groups), LargeLane
			if cs.ticks[c.Tenant] <= smallDue && !cs.Herds[c.Tenant] {
				c.Lane = SmallLane
			}
			if c.late {
				c.Lane = CatchUpLane
			}
		}
		owners[i], kinds[i], lanes[i], nominal[i], counts[i] = int32(c.Tenant), c.Kind, c.Lane, c.at, int32(c.Count)
	}
	var ids []int64 // in the order of the rows: one VALUES-like source, no join
	cs.Along.Queue(`
		INSERT INTO chunk (shard, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, swept_at, workflows, trace)
		SELECT $1, tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, `+postgres.Now+`, string_to_array(workflows, ','), trace
		FROM unnest($2::int[], $3::smallint[], $4::text[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::int[], $9::bytea[], $10::text[], $11::bytea[])
			AS n (tenant_id, kind, lane, nominal_at, first_id, last_id, ticks, items, workflows, trace)
		WHERE pg_current_xact_id() IS NOT NULL -- comes first: a transaction has its own number before it takes those of chunks
		RETURNING id`,
		cs.shard, owners, kinds, lanes, nominal, first, last, counts, items, cs.joined(), cs.beginSpans()).Query(func(rows pgx.Rows) (err error) {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if err := cs.Write(ctx, tx); err != nil {
		return nil, err
	}
	for i := range cs.Made {
		cs.Made[i].ID = ids[i]
	}
	return cs.Made, nil
}

// beginSpans begins a trace with a span for each chunk of first tries, and returns the stored Context of each chunk; nil if no spans are
// made. unnest fills the place of a nil array with NULL.
func (cs *Batch) beginSpans() [][]byte {
	if !cs.Traces.On() {
		return nil
	}
	contexts := make([][]byte, len(cs.Made))
	for i := range cs.Made {
		c := &cs.Made[i]
		if c.Kind != FirstTries {
			continue
		}
		c.span = cs.Traces.Begin("sweep", trace.Context{}, cs.began, trace.Facts{Tenant: int32(c.Tenant), Ticks: c.Count, Lane: c.Lane})
		if at := c.span.Context(); at.Sampled() {
			contexts[i] = at.Stored()
		}
	}
	return contexts
}

// EndSpans ends the spans of the chunks, which are written.
func (cs *Batch) EndSpans() {
	for i := range cs.Made {
		cs.Made[i].span.End(false)
	}
}

// Write runs the statements of Along in one round trip, and clears it.
func (cs *Batch) Write(ctx context.Context, tx pgx.Tx) error {
	err := tx.SendBatch(ctx, &cs.Along).Close()
	cs.Along = pgx.Batch{}
	if err != nil {
		return fmt.Errorf("write swept chunks: %w", err)
	}
	return nil
}

// joined returns the workflows of each chunk as one text with commas: no name has a comma, and unnest would flatten arrays.
func (cs *Batch) joined() []string {
	all := make([]string, len(cs.Made))
	for i, c := range cs.Made {
		for j, name := range c.workflows {
			if j > 0 {
				all[i] += ","
			}
			all[i] += name
		}
	}
	return all
}

func bounds(groups []Group) (first, last int64) {
	first = groups[0].IDs[0]
	for _, g := range groups {
		first, last = min(first, g.IDs[0]), max(last, g.IDs[len(g.IDs)-1])
	}
	return first, last
}

// Member is a member of a cohort as the sweep reads it. Missed is how many ticks it has missed.
type Member struct {
	ID, Phase int64
	Missed    int
	Own       *runs.Run // a run of its own, if its last time came before the cohort's run, or if it alone is not late; else nil
}
