package upkeep

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/postgres"
)

// Task is a part of upkeep. Any process may run it, but only one at a time: the others skip their run.
type Task struct {
	Name  string
	in    bool // this process runs it
	every time.Duration
	Limit time.Duration // of one run; the next run continues

	// look is the query of a cheap first look. If it finds no row, the run ends without the task's lock. It may be empty. If a query is not
	// enough, ask is called instead.
	look string
	ask  func(ctx context.Context) (bool, error)

	// Some does one batch and reports whether there may be more. The run repeats it until there is no more.
	Some func(ctx context.Context) (more bool, err error)
}

// whole makes a batch of a function that does all there is to do.
func whole(fn func(ctx context.Context) error) func(ctx context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) { return false, fn(ctx) }
}

// Full makes a batch of a function that returns how many rows it changed: there may be more if it changed most.
func Full(most int64, fn func(ctx context.Context) (int64, error)) func(ctx context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		n, err := fn(ctx)
		return n >= most, err
	}
}

// paced makes a batch of a task of upkeepEvery, like Full, of a function whose look has no floor. A pause follows the last batch of a run if
// its look took long.
func paced(most int64, fn func(ctx context.Context) (int64, error)) func(ctx context.Context) (bool, error) {
	pause := cluster.Seldom{Every: upkeepEvery}
	return func(ctx context.Context) (more bool, err error) {
		began := time.Now()
		if !pause.Due(began) {
			return false, nil
		}
		n, err := fn(ctx)
		if err == nil && n < most {
			pause.Found(time.Since(began), int(n), time.Now())
		}
		return n >= most, err
	}
}

// taskRunner runs tasks, each in one process at a time.
type taskRunner struct {
	pool  *pgxpool.Pool
	locks taskLocks
}

// run repeats the task's batches until nothing is left or its time is over. It does nothing if another process runs the task.
func (r *taskRunner) run(ctx context.Context, t Task) error {
	limited, cancel := context.WithTimeout(ctx, t.Limit)
	defer cancel()
	if t.look != "" {
		t.ask = func(ctx context.Context) (bool, error) { return postgres.Finds(ctx, r.pool, t.look) }
	}
	if t.ask != nil {
		if found, err := t.ask(limited); err != nil || !found {
			return err
		}
	}
	taken, err := r.locks.take(limited, r.pool, t.Name)
	if err != nil || !taken {
		return err
	}
	defer r.locks.release(ctx, t.Name)
	for batches := 0; ; batches++ {
		more, err := t.Some(limited)
		if batches > 0 && errors.Is(limited.Err(), context.DeadlineExceeded) {
			return nil
		}
		if err != nil || !more {
			return err
		}
	}
}

// taskLocks holds the session-level advisory locks of the tasks that this process runs. All are locks of one connection,
// which it takes from the pool while any task runs, so that tasks never use up the pool.
type taskLocks struct {
	mu   sync.Mutex
	conn *pgxpool.Conn
	held map[string]bool
}

// TaskLock returns the number of a task's advisory lock.
func TaskLock(name string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int32(h.Sum32())
}

// take takes a task's lock. taken is false if this process or another one holds it.
func (l *taskLocks) take(ctx context.Context, pool *pgxpool.Pool, name string) (taken bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[name] { // the server would give the same session its lock again
		return false, nil
	}
	if l.conn == nil {
		if l.conn, err = pool.Acquire(ctx); err != nil {
			return false, fmt.Errorf("lock task: %w", err)
		}
	}
	err = l.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, $2) FROM set_config('idle_session_timeout', $3, false)`,
		postgres.TaskLocks, TaskLock(name), milliseconds(holderSilent)).Scan(&taken)
	if taken {
		if l.held == nil {
			l.held = map[string]bool{}
		}
		l.held[name] = true
	} else if err == nil && len(l.held) == 0 {
		_, err = l.conn.Exec(ctx, `RESET idle_session_timeout`)
	}
	l.settle(ctx, err)
	if err != nil {
		return false, fmt.Errorf("lock task: %w", err)
	}
	return taken, nil
}

const releaseLimit = 2 * time.Second

// holderSilent is how long a stopped process keeps its locks: the server then ends its session. It is longer than the limit of any
// task.
const holderSilent = 2 * time.Minute

// release releases the lock, even if ctx has ended.
func (l *taskLocks) release(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, name)
	if l.conn == nil { // it was closed after an error, which ended all of its locks
		return
	}
	timeout := holderSilent
	if len(l.held) == 0 {
		timeout = 0
	}
	_, err := l.conn.Exec(ctx, `SELECT pg_advisory_unlock($1, $2) FROM set_config('idle_session_timeout', $3, false)`,
		postgres.TaskLocks, TaskLock(name), milliseconds(timeout))
	l.settle(ctx, err)
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// settle returns the connection to the pool once no lock is held. After an error it closes the connection: the server
// then ends the locks of the session.
func (l *taskLocks) settle(ctx context.Context, err error) {
	if err != nil {
		_ = l.conn.Conn().Close(ctx)
	}
	if err != nil || len(l.held) == 0 {
		l.conn.Release()
		l.conn = nil
	}
}
