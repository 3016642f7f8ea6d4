package main

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/tenants"
)

// bench is a migrated database on this machine, with a built carillon and the environment to serve it.
type bench struct {
	*workshop
	url    string
	env    []string
	db     *pgx.Conn
	minter tenants.Minter
	ends   []func()
}

// openBench builds carillon and migrates a database.
func openBench(ctx context.Context, o options, p *progress) (_ *bench, err error) {
	b := &bench{}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.workshop, err = openWorkshop(ctx, o, p); err != nil {
		return nil, err
	}
	b.ends = append(b.ends, b.workshop.close)
	var stop func()
	if b.url, stop, err = database(ctx, o, p); err != nil {
		return nil, err
	}
	b.ends = append(b.ends, stop)
	seed := randomSeed()
	b.env = []string{"DATABASE_URL=" + b.url, "CARILLON_ISSUER_KEY=" + base64.StdEncoding.EncodeToString(seed), "CARILLON_CLEAR_SECRETS=true"}
	b.minter = tenants.NewIssuer(ed25519.NewKeyFromSeed(seed), "carillon")
	if _, err := b.output(ctx, b.env, "migrate"); err != nil {
		return nil, err
	}
	if b.db, err = pgx.Connect(ctx, b.url); err != nil {
		return nil, err
	}
	b.ends = append(b.ends, func() { _ = b.db.Close(context.WithoutCancel(ctx)) })
	return b, nil
}

// close ends everything that the bench started, in reverse order.
func (b *bench) close() {
	for i := len(b.ends) - 1; i >= 0; i-- {
		b.ends[i]()
	}
}

// unlimited creates a tenant with practically no limit on ticks and requests.
func (b *bench) unlimited(ctx context.Context, name string) error {
	q := tenants.Wide()
	q.TicksPerSecond, q.ProjectedTicksPerDay = 10_000_000, 1_000_000_000_000
	q.UpsertsPerSecond, q.RequestsPerSecond = 10_000_000, 10_000_000
	_, err := tenants.Ensure(ctx, b.db, name, q)
	return err
}

// put stores n schedules of a tenant through the API.
func (b *bench) put(ctx context.Context, s *served, tenant string, n int, lines iter.Seq[carillon.BulkLine]) error {
	at, err := b.announce(s, tenant)
	if err != nil {
		return err
	}
	body, err := encoded(lines)
	if err != nil {
		return err
	}
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	sum, err := sendBulk(ctx, httpClient(transport), at, "/v1/schedules/bulk", body)
	if err != nil {
		return err
	}
	if sum.Inserted != n {
		return fmt.Errorf("of %d schedules of %s came %+v", n, tenant, sum)
	}
	return nil
}

// serveTwo starts two processes that share the database. stop ends both.
func (b *bench) serveTwo(ctx context.Context, args ...string) (one, other *served, stop func(), err error) {
	env := append(b.env, "CARILLON_CONNECTIONS=20")
	if one, err = b.serve(ctx, "one", env, args...); err != nil {
		return nil, nil, nil, err
	}
	if other, err = b.serve(ctx, "other", env, args...); err != nil {
		one.stop()
		return nil, nil, nil, err
	}
	return one, other, func() { other.stop(); one.stop() }, nil
}

// announce returns the URL of the process and a token of the tenant.
func (b *bench) announce(s *served, tenant string) (announcement, error) {
	claims := tenants.Claims{Subject: "loadtest", Tenant: tenant, Scopes: []string{tenants.SchedulesWrite, tenants.TicksWork}, TTL: time.Hour}
	token, err := b.minter.Mint(claims, time.Now())
	return announcement{URL: "http://" + s.Listen, Token: token, DatabaseURL: b.url}, err
}

// analyzed collects statistics for the planner, as autovacuum does after a while.
func analyzed(ctx context.Context, db *pgx.Conn) error {
	for _, table := range []string{"schedule", "schedule_state", "member", "cohort", "cohort_timing"} {
		if _, err := db.Exec(ctx, `VACUUM (ANALYZE) `+table); err != nil {
			return err
		}
	}
	return nil
}

// dueAll makes the cohorts of a workflow due at the returned moment. Their nominal times are distributed over the `spread` seconds
// before it. None is before its members joined.
func dueAll(ctx context.Context, db *pgx.Conn, workflow string, in time.Duration, spread int) (due time.Time, err error) {
	if err := db.QueryRow(ctx, `
		SELECT date_trunc('second', GREATEST(clock_timestamp() + $1::interval, max(m.from_at) + make_interval(secs => $3)))
		FROM cohort c
		JOIN member m ON m.cohort_id = c.id
		WHERE c.workflow = $2`, in, workflow, spread+1).Scan(&due); err != nil {
		return due, err
	}
	_, err = db.Exec(ctx, `
		UPDATE cohort
		SET next_at = $2::timestamptz - make_interval(secs => id % $3), due_at = $2
		WHERE workflow = $1`, workflow, due, spread)
	return due, err
}

// cost is what the processes of a bench have used.
type cost struct {
	postgres, ours time.Duration // of CPU
	wal            int64         // bytes
}

// costUntilNow returns what PostgreSQL and our process with a pid have used since they started.
func costUntilNow(ctx context.Context, db *pgx.Conn, ours int) (c cost, err error) {
	var backend int
	if err := db.QueryRow(ctx, `SELECT pg_backend_pid(), (pg_current_wal_insert_lsn() - '0/0')::int8`).Scan(&backend, &c.wal); err != nil {
		return c, err
	}
	if c.postgres, err = serverCPU(backend); err != nil {
		return c, err
	}
	c.ours, _, err = processCPU(ours)
	return c, err
}

func (c cost) less(d cost) cost {
	return cost{c.postgres - d.postgres, c.ours - d.ours, c.wal - d.wal}
}

func (c cost) plus(d cost) cost {
	return cost{c.postgres + d.postgres, c.ours + d.ours, c.wal + d.wal}
}

// note notes the cost of a tick, in microseconds of CPU and bytes of WAL.
func (c cost) note(r *report, name string, ticks int) {
	r.figure(name+"_postgres_us_a_tick", micros(c.postgres, ticks))
	r.figure(name+"_carillon_us_a_tick", micros(c.ours, ticks))
	r.figure(name+"_wal_bytes_a_tick", float64(c.wal)/float64(ticks))
}

func micros(d time.Duration, n int) float64 { return d.Seconds() * 1e6 / float64(n) }

// serverCPU returns the CPU that a PostgreSQL server has used, given the pid of one of its backends. It adds up the processes that
// run and those that have ended.
func serverCPU(backend int) (total time.Duration, err error) {
	_, stat, err := processCPU(backend)
	if err != nil {
		return 0, fmt.Errorf("PostgreSQL must run on this machine: %w", err)
	}
	server := stat.parent
	own, stat, err := processCPU(server)
	if err != nil {
		return 0, err
	}
	total = own + stat.ended
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if used, stat, err := processCPU(pid); err == nil && stat.parent == server { // a process that has just ended is counted with its parent next time
			total += used
		}
	}
	return total, nil
}

// processStat is the parent of a process, and the CPU that its ended children used.
type processStat struct {
	parent int
	ended  time.Duration
}

const clockTick = 10 * time.Millisecond // of /proc, on all that Linux runs on

// processCPU returns how much CPU a process has used.
func processCPU(pid int) (used time.Duration, s processStat, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, s, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return 0, s, errors.New("the status of a process is cut short")
	}
	var n [15]int64
	for i := 1; i < len(n); i++ {
		n[i], _ = strconv.ParseInt(fields[i], 10, 64) // all but the first are numbers
	}
	return time.Duration(n[11]+n[12]) * clockTick, processStat{int(n[1]), time.Duration(n[13]+n[14]) * clockTick}, nil
}
