package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// fault is a disturbance of the lab. Its function undoes it before it returns.
type fault struct {
	kind   string
	weight int
	do     func(ctx context.Context, f *faulty) (on string, err error)
}

// faulty disturbs a lab with one fault after another. Several of them do so at once.
type faulty struct {
	*Lab
	rand  *rand.Rand
	crash *crashes
	kinds []fault
}

var faults = []fault{
	{"kill", 9, func(ctx context.Context, f *faulty) (string, error) {
		n := f.node("")
		defer n.fault.Unlock()
		n.kill()
		sleep(ctx, f.upto(1500*time.Millisecond))
		return n.name, n.revive(ctx, "")
	}},
	{"crash_point", 6, crashAtAPoint},
	{"restart", 1, func(ctx context.Context, f *faulty) (string, error) {
		n := f.node("")
		defer n.fault.Unlock()
		n.stop(ctx)
		return n.name, n.revive(ctx, "")
	}},
	{"stop", 3, func(ctx context.Context, f *faulty) (string, error) {
		n := f.node("")
		defer n.fault.Unlock()
		n.signal(syscall.SIGSTOP)
		defer n.signal(syscall.SIGCONT)
		sleep(ctx, time.Second+f.upto(9*time.Second)) // longer than the 5 s after which others take over
		return n.name, nil
	}},
	{"postgres_kill", 1, func(ctx context.Context, f *faulty) (string, error) {
		return "", f.restartPostgres(ctx, func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) })
	}},
	{"postgres_immediate", 1, func(ctx context.Context, f *faulty) (string, error) {
		return "", f.restartPostgres(ctx, func(pid int) error { return syscall.Kill(pid, syscall.SIGQUIT) })
	}},
	{"terminate", 5, func(ctx context.Context, f *faulty) (string, error) {
		return "", f.terminate(ctx, 0.1+0.4*f.rand.Float64())
	}},
	{"cut", 3, func(ctx context.Context, f *faulty) (string, error) {
		n := f.node("")
		defer n.fault.Unlock()
		defer n.cure(context.WithoutCancel(ctx))
		n.proxy.Stop()
		sleep(ctx, f.upto(3*time.Second))
		return n.name, nil
	}},
	{"cut_in_flight", 4, func(ctx context.Context, f *faulty) (string, error) { // also inside COMMIT, whose answer is lost
		n := f.node("")
		defer n.fault.Unlock()
		defer n.cure(context.WithoutCancel(ctx))
		err := n.toxic("limit_data", "downstream", fmt.Sprintf(`{"bytes":%d}`, 2000+f.rand.IntN(60_000)))
		sleep(ctx, time.Second+f.upto(3*time.Second))
		return n.name, err
	}},
	{"black_hole", 2, func(ctx context.Context, f *faulty) (string, error) {
		n := f.node("")
		defer n.fault.Unlock()
		defer n.cure(context.WithoutCancel(ctx))
		err := n.toxic("timeout", []string{"downstream", "upstream"}[f.rand.IntN(2)], `{"timeout":0}`)
		sleep(ctx, time.Second+f.upto(7*time.Second))
		return n.name, err
	}},
	{"dead_host", 2, func(ctx context.Context, f *faulty) (string, error) { // its old connections stay dead; new ones reach PostgreSQL
		n := f.node("")
		defer n.fault.Unlock()
		n.host.Silence()
		sleep(ctx, time.Second+f.upto(4*time.Second))
		return n.name, nil
	}},
	{"latency", 2, func(ctx context.Context, f *faulty) (string, error) {
		n := f.node("")
		defer n.fault.Unlock()
		defer n.cure(context.WithoutCancel(ctx))
		err := n.toxic("latency", "downstream", fmt.Sprintf(`{"latency":%d,"jitter":%d}`, 5+f.rand.IntN(60), f.rand.IntN(40)))
		sleep(ctx, time.Second+f.upto(6*time.Second))
		return n.name, err
	}},
	{"lock_table", 1, func(ctx context.Context, f *faulty) (string, error) {
		table := []string{"cohort", "schedule_state", "chunk", "schedule", "held", "member"}[f.rand.IntN(6)]
		return table, f.held(ctx, `LOCK TABLE `+table+` IN ACCESS EXCLUSIVE MODE`, f.upto(4*time.Second))
	}},
	{"no_connections", 1, func(ctx context.Context, f *faulty) (string, error) {
		return "", f.crowd(ctx, f.upto(4*time.Second))
	}},
	{"poisoned_row", 1, func(ctx context.Context, f *faulty) (string, error) { // of a tenant whose ticks are not checked
		return poisoned, f.sql(ctx, `
			UPDATE cohort_timing SET timing = 'not a timing'
			WHERE tenant_id = (SELECT id FROM tenant WHERE name = $1)`, poisoned)
	}},
	{"two_owners", 2, func(ctx context.Context, f *faulty) (string, error) { // it goes on although the others consider it dead
		n := f.node([]string{"sweep", "dispatch"}[f.rand.IntN(2)])
		defer n.fault.Unlock()
		for until := time.Now().Add(f.upto(6 * time.Second)); ctx.Err() == nil && time.Now().Before(until); sleep(ctx, 50*time.Millisecond) {
			_ = f.sql(ctx, `UPDATE process SET beat_at = clock_timestamp() - make_interval(secs => $2) WHERE pid = $1`, n.pid(), []float64{3, 6}[f.rand.IntN(2)])
		}
		return n.name, nil
	}},
	{"full_disk", 1, func(ctx context.Context, f *faulty) (string, error) {
		return "", f.fillDisk(ctx, 2*time.Second+f.upto(6*time.Second))
	}},
	{"another_version", 3, func(ctx context.Context, f *faulty) (string, error) {
		n := f.node("")
		defer n.fault.Unlock()
		n.stop(ctx)
		n.binary, n.other = n.other, n.binary
		return n.name, n.revive(ctx, "")
	}},
	{"endpoint_cut", 1, func(ctx context.Context, f *faulty) (string, error) {
		k := f.endpoint()
		defer k.fault.Unlock()
		defer k.cure(context.WithoutCancel(ctx))
		k.proxy.Stop()
		sleep(ctx, time.Second+f.upto(4*time.Second))
		return k.name, nil
	}},
	{"endpoint_cut_in_flight", 1, func(ctx context.Context, f *faulty) (string, error) {
		k := f.endpoint()
		defer k.fault.Unlock()
		defer k.cure(context.WithoutCancel(ctx))
		err := k.toxic("limit_data", []string{"downstream", "upstream"}[f.rand.IntN(2)], fmt.Sprintf(`{"bytes":%d}`, f.rand.IntN(8_000)))
		sleep(ctx, time.Second+f.upto(4*time.Second))
		return k.name, err
	}},
	{"endpoint_black_hole", 1, func(ctx context.Context, f *faulty) (string, error) {
		k := f.endpoint()
		defer k.fault.Unlock()
		defer k.cure(context.WithoutCancel(ctx))
		err := k.toxic("timeout", []string{"downstream", "upstream"}[f.rand.IntN(2)], `{"timeout":0}`)
		sleep(ctx, time.Second+f.upto(7*time.Second))
		return k.name, err
	}},
	{"endpoint_latency", 1, func(ctx context.Context, f *faulty) (string, error) {
		k := f.endpoint()
		defer k.fault.Unlock()
		defer k.cure(context.WithoutCancel(ctx))
		err := k.toxic("latency", "downstream", fmt.Sprintf(`{"latency":%d,"jitter":%d}`, 100+f.rand.IntN(2000), f.rand.IntN(500)))
		sleep(ctx, time.Second+f.upto(6*time.Second))
		return k.name, err
	}},
	{"old_snapshot", 1, func(ctx context.Context, f *faulty) (string, error) {
		return "", f.held(ctx, `SELECT count(*) FROM schedule_state`, 5*time.Second+f.upto(10*time.Second))
	}},
}

// revive starts the process again and waits until it serves. If ctx ends before, the healing waits for it.
func (n *node) revive(ctx context.Context, armed string) error {
	if err := n.start(armed); err != nil {
		return err
	}
	if err := n.ready(ctx, 2*time.Minute); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// node locks a process that no other fault disturbs, of a role unless role is empty.
func (f *faulty) node(role string) *node {
	for {
		nodes := f.role(role)
		n := nodes[f.rand.IntN(len(nodes))]
		if n.fault.TryLock() {
			return n
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// other returns another process of the same role.
func (f *faulty) other(n *node) *node {
	nodes := f.role(n.role)
	return nodes[slices.IndexFunc(nodes, func(o *node) bool { return o != n })]
}

// endpoint locks the link to an endpoint that no other fault disturbs.
func (f *faulty) endpoint() *link {
	for links := f.sink.all(); ; {
		if k := links[f.rand.IntN(len(links))]; k.fault.TryLock() {
			return k
		}
	}
}

// terminate ends a part of the backends and counts them.
func (f *faulty) terminate(ctx context.Context, part float64) error {
	conn, err := pgx.Connect(ctx, f.database)
	if err != nil {
		return nil // another fault has stopped the server
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var n int64
	if conn.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE pg_terminate_backend(pid))
		FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < $1`, part).Scan(&n) == nil {
		f.ended.Add(n)
	}
	return nil
}

// fillDisk leaves PostgreSQL no disk space for a while. If PostgreSQL could not even write its WAL, it has ended by itself, and is
// started again.
func (f *faulty) fillDisk(ctx context.Context, wait time.Duration) error {
	f.down.Lock()
	defer f.down.Unlock()
	if err := f.disk.fill(); err != nil {
		return err
	}
	sleep(ctx, wait)
	if err := f.disk.free(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, f.database)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-f.postgres.Done():
			return f.postgres.Restart(ctx)
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not come back after its disk was full: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (f *faulty) upto(d time.Duration) time.Duration { return time.Duration(f.rand.Int64N(int64(d))) }

// sql runs a statement as PostgreSQL's superuser. It does nothing if another fault has stopped the server.
func (f *faulty) sql(ctx context.Context, sql string, args ...any) error {
	return f.held(ctx, sql, 0, args...)
}

// held runs a statement and keeps its transaction open for a while.
func (f *faulty) held(ctx context.Context, sql string, wait time.Duration, args ...any) error {
	conn, err := pgx.Connect(ctx, f.database)
	if err != nil {
		return nil
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_ = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		rows.Close()
		sleep(ctx, wait)
		return rows.Err()
	})
	return nil
}

// crowd opens all connections that PostgreSQL has left, and keeps them for a while.
func (f *faulty) crowd(ctx context.Context, wait time.Duration) error {
	var all []*pgx.Conn
	for range 200 {
		conn, err := pgx.Connect(ctx, f.database)
		if err != nil {
			break // there are no more
		}
		all = append(all, conn)
	}
	sleep(ctx, wait)
	for _, conn := range all {
		_ = conn.Close(context.WithoutCancel(ctx)) // it may have been cut meanwhile
	}
	return nil
}

// work causes one fault after another until ctx ends.
func (f *faulty) work(ctx context.Context, pause time.Duration) error {
	total := 0
	for _, one := range f.kinds {
		total += one.weight
	}
	for sleep(ctx, pause/2+f.upto(pause)) {
		pick := f.rand.IntN(total)
		for _, one := range f.kinds {
			if pick -= one.weight; pick >= 0 {
				continue
			}
			began := time.Now()
			on, err := one.do(ctx, f)
			f.troubles.add(disturbance{one.kind, on, began, time.Now()})
			if err != nil {
				return fmt.Errorf("%s of %s: %w", one.kind, on, err)
			}
			break
		}
	}
	return nil
}

// heal ends all disturbances, and waits until all processes are ready.
func (l *Lab) heal(ctx context.Context) error {
	l.healed.Store(true)
	for _, n := range l.nodes {
		n.cure(ctx)
		n.signal(syscall.SIGCONT)
	}
	for _, k := range l.sink.all() {
		k.cure(ctx)
	}
	for _, n := range l.nodes {
		if err := n.ready(ctx, 2*time.Minute); err != nil {
			return err
		}
	}
	return nil
}
