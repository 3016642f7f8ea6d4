package dispatch_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/dispatch/tail"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// planNode is a step of a plan as EXPLAIN (ANALYZE, FORMAT JSON) shows it. Rows are those of one loop.
type planNode struct {
	Type      string      `json:"Node Type"`
	Parent    string      `json:"Parent Relationship"`
	Relation  string      `json:"Relation Name"`
	Index     string      `json:"Index Name,omitempty"`
	Rows      int         `json:"Actual Rows"`
	Loops     int         `json:"Actual Loops"`
	Filtered  int         `json:"Rows Removed by Filter"`
	Rechecked int         `json:"Rows Removed by Index Recheck"`
	Plans     []*planNode `json:",omitempty"`
}

// mostFolded bounds how many added-up rows count as work of a statement. Without it, a count of a whole table would justify its own reads.
const mostFolded = 1000

// count returns how many rows the plan reads from our tables, and how many it changes or folds into one row.
func (n *planNode) count() (read, work int) {
	if n.Relation != "" && strings.HasSuffix(n.Type, "Scan") && !strings.HasPrefix(n.Relation, "pg_") {
		read = (n.Rows + n.Filtered + n.Rechecked) * n.Loops
	}
	for _, sub := range n.Plans {
		subRead, subWork := sub.count()
		read, work = read+subRead, work+subWork
		switch {
		case n.Type == "ModifyTable" && sub.Parent == "Outer":
			work += sub.Rows * sub.Loops
		case n.Type == "Aggregate", n.Type == "Unique":
			work += min(sub.Rows*sub.Loops, mostFolded)
		}
	}
	return read, work
}

// statement is one that the engine ran, with the plan of its most costly run.
type statement struct {
	SQL        string    `json:"Query Text"`
	Plan       *planNode `json:"Plan"`
	read, work int
}

func (s *statement) excess() int { return s.read - 10*s.work - 100 }

// plans collects the plans of all statements that the sessions of a pool run. PostgreSQL's auto_explain reports them, so they are the
// plans of the real runs, with their arguments and within their transactions.
type plans struct {
	mu   sync.Mutex
	seen map[string]*statement
	bad  []string
}

// tell receives each notice of the server, and keeps the plan that it contains.
func (p *plans) tell(_ *pgconn.PgConn, n *pgconn.Notice) {
	_, text, found := strings.Cut(n.Message, "plan:\n")
	if !found {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &statement{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		p.bad = append(p.bad, text)
		return
	}
	s.SQL = strings.TrimSpace(s.SQL)
	if strings.Contains(s.SQL, "river_") && !strings.Contains(s.SQL, "chunk") {
		return // River's own
	}
	s.read, s.work = s.Plan.count()
	if s.Plan.Type != "ModifyTable" {
		s.work += s.Plan.Rows
	}
	if worst := p.seen[s.SQL]; worst == nil || s.excess() > worst.excess() {
		p.seen[s.SQL] = s
	}
}

// lacks returns the SQL texts that no statement so far contains, each with the name of its function. It leaves out those of notRun.
func (p *plans) lacks(texts map[string][][]string) (left []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var seen []string
	for sql := range p.seen {
		seen = append(seen, strings.Join(strings.Fields(sql), " "))
	}
	for name, all := range texts {
		for _, parts := range all {
			found := slices.ContainsFunc(seen, func(sql string) bool {
				return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(sql, part) })
			})
			text := name + ": " + strings.Join(parts, " … ")
			if !found && !slices.ContainsFunc(notRun, func(start string) bool { return strings.HasPrefix(text, start) }) {
				left = append(left, text)
			}
		}
	}
	slices.Sort(left)
	return left
}

// watched returns a pool like another one, whose sessions report their plans to p.
func (p *plans) watched(t *testing.T, like *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	config := like.Config()
	config.ConnConfig.OnNotice = p.tell
	asBefore := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		for _, sql := range []string{
			`SET ROLE NONE`, `LOAD 'auto_explain'`, `SET auto_explain.log_min_duration = 0`, `SET auto_explain.log_analyze = on`,
			`SET auto_explain.log_nested_statements = on`, `SET auto_explain.log_timing = off`, `SET auto_explain.log_format = json`, `SET auto_explain.log_level = notice`,
			`SET ROLE ` + postgres.EngineRole,
		} {
			if _, err := c.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return asBefore(ctx, c)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// What the engine does without a request reads few rows beyond those that it changes or returns, beside a million rows of other tenants.
func TestWhatRunsUnaskedReadsNoMoreThanItsWork(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Others()
	h.StoreDone(300)
	h.Put("herd", "first", dispatchtest.Rarely("skip"))
	h.Herd("herd", "first", 299)
	for _, sql := range dispatchtest.LaidWork {
		h.Exec(sql, h.Tenant)
	}
	for _, workflow := range []string{"a", "b", "c"} {
		h.Put(workflow, "k", dispatchtest.EverySecond())
	}
	p := &plans{seen: map[string]*statement{}}
	h.Config.Pool = p.watched(t, h.Config.Pool)
	h.Config.API = postgres.NewTenantPool(postgrestest.As(t, h.Pool, postgres.APIRole)) // which answers nothing without a tenant
	h.Config.Uses = func(context.Context, tenants.ID) (map[string]tenants.Use, error) { return nil, nil }
	h.Config.Settle = func(context.Context, tenants.ID, string, string) error { return nil }
	h.Config.Operations = operations.New(operations.Config{Pool: h.Config.API, Engine: h.Config.Pool, IDs: h.Config.IDs, Cursors: h.Config.Cursors, Queue: h.Jobs.QueueOperation})
	h.Config.Erase = func(ctx context.Context) error { return h.Subjects.FinishErasures(ctx, h.Config.Pool) }
	h.Config.Pause = func(context.Context, tenants.ID, int64, string) error { return nil }
	d := h.Process()
	d.RegisterSteps()
	d.Room(2)
	provokeRetention(h)
	goOn := provoke(h)
	h.Start(d)
	followTicks(h, "a")
	poll(h, d, "idle")
	goOn()
	texts := unaskedSQL(t, "dispatch.Dispatch.Start", "open.worker.Work", "upkeep.worker.Work", "subjects.Erasures.FinishErasures")
	defer p.hold(t)
	h.Config.Sweeps, h.Config.Dispatches = false, false
	besides := h.Process()
	provokeBacklog(h, besides)
	// On a busy machine one of the two walks may use up the time of the run that River starts, and the next run begins ten minutes later.
	if err := besides.RetainSchedules(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, text := range p.lacks(texts) {
			t.Errorf("not explained, as it did not run: %s", text)
		}
	})
	dispatchtest.Until(t, "all statements have run", func() bool {
		leaseShortly(h, "a", "few")
		for range 2 { // the second look follows at once, so it is not a full look
			if err := besides.TakeOwned(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return len(p.lacks(texts)) == 0
	})
	dispatchtest.Until(t, "all schedules of the herd are completed, but for the first, which belongs to the key that is erased", func() bool {
		return h.Number(`SELECT count(*) FROM schedule WHERE tenant_id = $1 AND workflow = 'herd' AND key <> 'first' AND status = 'completed'`, h.Tenant) == 299
	})
}

// followTicks follows the ticks of a workflow, as a client of another process does, until the test ends.
func followTicks(h *dispatchtest.Carillon, workflow string) {
	h.T.Helper()
	_, leave, err := tail.New(h.Pool, slog.New(slog.DiscardHandler)).Follow(h.T.Context(), h.Tenant, tail.Filter{Workflow: workflow})
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(leave)
}

// poll waits for ticks of a workflow through a process until the test ends, or for 20 s.
func poll(h *dispatchtest.Carillon, d *dispatchtest.Process, workflow string) {
	ctx, stop := context.WithCancel(postgres.ForTenant(h.T.Context(), int32(h.Tenant)))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = d.Leases.Lease(ctx, h.Tenant, lease.LeaseParams{Workflows: []string{workflow}, Max: new(1), Wait: "20s", Worker: "w"}, nil) // it fails when the test ends
	}()
	h.T.Cleanup(func() {
		stop()
		<-ended
	})
}

// leaseShortly leases a tick, if one is ready, with a lease that ends at once.
func leaseShortly(h *dispatchtest.Carillon, workflows ...string) {
	h.T.Helper()
	if _, err := h.Dispatch.Leases.Lease(h.T.Context(), h.Tenant, lease.LeaseParams{Workflows: workflows, Max: new(1), Worker: "w"}, nil); err != nil {
		h.T.Fatal(err)
	}
	// Every other lease is lengthened by two seconds from now on.
	h.Exec(`
		INSERT INTO lease_beat (lease_id, slot, until_at)
		SELECT id, 0, clock_timestamp() + interval '2 seconds' FROM (SELECT id FROM lease WHERE tenant_id = $1 AND id % 2 = 0 FOR KEY SHARE) l
		ON CONFLICT DO NOTHING`, h.Tenant)
	h.Exec(`UPDATE lease SET until_at = clock_timestamp() WHERE tenant_id = $1`, h.Tenant)
}

// hold fails the test for each statement that reads too much.
func (p *plans) hold(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("%d statements were run", len(p.seen))
	for _, s := range p.seen {
		if !s.mayRead() {
			plan, err := json.Marshal(s.Plan)
			t.Errorf("%d rows are read for %d: %v\n%s\n%s", s.read, s.work, err, s.SQL, plan)
		}
	}
	if len(p.bad) > 0 {
		t.Errorf("%d plans are not understood, such as %s", len(p.bad), p.bad[0])
	}
}
