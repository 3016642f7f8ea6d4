package cluster

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	beatEvery   = time.Second
	DeadAfter   = 5 * time.Second         // from then on others take over what a silent process owns
	idleAfter   = 2500 * time.Millisecond // from then on others sweep its shards; the lock of a shard keeps two sweeps apart
	silentAfter = 3500 * time.Millisecond // from then on a process without a heartbeat sends nothing, well before others take over
)

// Member is this process among the others: it writes a heartbeat, and knows which other processes live.
type Member struct {
	config Membership
	lapses chan chan<- struct{}

	mu      sync.Mutex
	id      int64
	beaten  time.Time // when the last heartbeat was sent, by our own monotonic clock
	lapsed  bool      // it was silent too long, and must drop what it held
	sweeps  []int64   // the living processes that sweep
	opening []int64   // the living processes that dispatch
}

// Membership describes this process to the others, and holds what it needs to join them.
type Membership struct {
	Pool                 *pgxpool.Pool
	Log                  *slog.Logger
	Name                 string                    // for people
	Version              string                    // of its program, likewise
	Sweeping, Dispatches bool                      // which part of the work it does
	Serving              bool                      // it serves the API
	Recheck              func(ctx context.Context) // drops connections that may lead to a host that has died; nil: the pool is reset
}

// NewMember returns a Member that has not joined yet.
func NewMember(m Membership) *Member {
	return &Member{config: m, lapses: make(chan chan<- struct{})}
}

// Register joins the other processes under a new number, and marks the dead processes of this machine.
func (p *Member) Register(ctx context.Context) error {
	at := time.Now()
	var id int64
	err := p.config.Pool.QueryRow(ctx, `INSERT INTO process (name, place, pid, sweeps, dispatches, serves, version) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id`,
		p.config.Name, whereabouts(), os.Getpid(), p.config.Sweeping, p.config.Dispatches, p.config.Serving, p.config.Version).Scan(&id)
	if err != nil {
		return fmt.Errorf("join the processes: %w", err)
	}
	if err := p.markDead(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.id, p.beaten, p.lapsed = id, at, false
	p.mu.Unlock()
	return p.refresh(ctx)
}

// markDead marks the processes of this machine that no longer run as dead, so that others take over at once what they held. Most often
// that is the process that this one replaces.
func (p *Member) markDead(ctx context.Context) error {
	here := whereabouts()
	if here == "" {
		return nil
	}
	rows, err := p.config.Pool.Query(ctx, `SELECT id, pid FROM process WHERE place = $1`, here)
	if err != nil {
		return fmt.Errorf("look for dead processes: %w", err)
	}
	var dead []int64
	var id int64
	var pid int
	_, err = pgx.ForEachRow(rows, []any{&id, &pid}, func() error {
		if ended(pid) {
			dead = append(dead, id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for dead processes: %w", err)
	}
	if len(dead) == 0 {
		return nil
	}
	if _, err := p.config.Pool.Exec(ctx, `
		UPDATE process
		SET beat_at = `+postgres.Now+` - make_interval(secs => $2)
		WHERE id = ANY ($1) AND beat_at > `+postgres.Now+` - make_interval(secs => $2)`, dead, DeadAfter.Seconds()); err != nil {
		return fmt.Errorf("mark dead processes: %w", err)
	}
	return nil
}

// whereabouts returns the scope of this process's pid: the boot of the machine, and the namespace. It is empty if the system does
// not say.
func whereabouts() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + space
}

// Self returns the number of this process, and whether it may act. It may not once others can count it as dead; it may again after it
// has dropped everything that it held and has registered under a new number.
func (p *Member) Self() (id int64, alive bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lapsed = p.lapsed || time.Since(p.beaten) >= silentAfter
	return p.id, !p.lapsed
}

// Beat writes a heartbeat each second until ctx ends. After one that fails or times out, the process looks for the primary again: the
// host of its connections may have died without closing them.
func (p *Member) Beat(ctx context.Context) {
	loop.Every(ctx, p.config.Log, beatEvery, "beat", func(ctx context.Context) error {
		err := p.BeatOnce(ctx)
		if err != nil && ctx.Err() == nil {
			p.lookForPrimary(ctx)
		}
		return err
	})
}

// beatWithin limits a heartbeat, and also the registration that may follow it.
const beatWithin = 2 * time.Second

// BeatOnce renews the process's row. A process that was silent too long drops everything that it held and registers again, under
// another number.
func (p *Member) BeatOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatWithin)
	defer cancel()
	id, alive := p.Self()
	if !alive {
		p.config.Log.Warn("this process was silent for too long and registers again", "process", id)
		return p.registerAgain(ctx)
	}
	at := time.Now()
	done, err := p.config.Pool.Exec(ctx, `
		UPDATE process
		SET beat_at = `+postgres.Now+`
		WHERE id = $1 AND beat_at > (SELECT `+postgres.Now+`) - make_interval(secs => $2)`, id, DeadAfter.Seconds())
	if err != nil {
		return err
	}
	if done.RowsAffected() == 0 {
		return p.registerAgain(ctx)
	}
	p.mu.Lock()
	p.beaten = at
	p.mu.Unlock()
	return p.refresh(ctx)
}

// Lapsed returns the channel that reports each time that this process was silent for too long. The receiver drops everything that the
// process held, and then closes the channel that it received. The process registers again only after that.
func (p *Member) Lapsed() <-chan chan<- struct{} { return p.lapses }

// registerAgain waits until everything that this process held is dropped, and registers.
func (p *Member) registerAgain(ctx context.Context) error {
	dropped := make(chan struct{})
	select {
	case p.lapses <- dropped:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-dropped
	return p.Register(ctx)
}

// recheckWithin bounds the search for the primary.
const recheckWithin = 5 * time.Second

// lookForPrimary drops connections that may lead to a host that has died.
func (p *Member) lookForPrimary(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recheckWithin)
	defer cancel()
	if p.config.Recheck == nil {
		p.config.Pool.Reset()
		return
	}
	p.config.Recheck(ctx)
}

// refresh reads which processes live.
func (p *Member) refresh(ctx context.Context) error {
	rows, err := p.config.Pool.Query(ctx, `
		SELECT id, sweeps, dispatches
		FROM process
		WHERE beat_at > (SELECT `+postgres.Now+`) - make_interval(secs => $1)`, idleAfter.Seconds())
	if err != nil {
		return fmt.Errorf("read the living processes: %w", err)
	}
	defer rows.Close()
	var living, opening []int64
	for rows.Next() {
		var id int64
		var sweeps, dispatches bool
		if err := rows.Scan(&id, &sweeps, &dispatches); err != nil {
			return fmt.Errorf("read the living processes: %w", err)
		}
		if sweeps {
			living = append(living, id)
		}
		if dispatches {
			opening = append(opening, id)
		}
	}
	slices.Sort(living)
	slices.Sort(opening)
	p.mu.Lock()
	p.sweeps, p.opening = living, opening
	p.mu.Unlock()
	return rows.Err()
}

// Dispatching returns how many living processes dispatch, at least 1.
func (p *Member) Dispatching() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(1, len(p.opening))
}

// Opens reports whether this process opens a run that all processes were notified of. If two processes disagree for a moment, both may
// open it: that does no harm, because an open chunk is not opened again.
func (p *Member) Opens(chunk int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := int64(len(p.opening))
	return n > 0 && p.opening[chunk%n] == p.id
}

// Shards returns the shards that this process sweeps. Each shard goes to the living process with the highest score for it, so that a
// process that comes or goes moves no other shards. If two processes disagree for a moment, the lock of the shard serves them one
// after the other.
func (p *Member) Shards() []int16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ShardsOf(p.id, p.sweeps)
}

// ShardsOf returns the shards that a process sweeps, if these processes live and sweep.
func ShardsOf(process int64, sweeping []int64) (its []int16) {
	for shard := range int16(cohorts.Shards) {
		best, bestScore := int64(0), uint64(0)
		for _, id := range sweeping {
			if s := score(id, shard); best == 0 || s > bestScore {
				best, bestScore = id, s
			}
		}
		if best == process {
			its = append(its, shard)
		}
	}
	return its
}

func score(process int64, shard int16) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%d", shard, process)
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>31
}

// Leave deletes the process's row if the process has no open chunk that it opened at from or later. Otherwise it marks the process
// dead, and others take over its chunks.
func (p *Member) Leave(ctx context.Context, from time.Time) {
	id, _ := p.Self()
	var b pgx.Batch
	b.Queue(`DELETE FROM process WHERE id = $1 AND NOT EXISTS (SELECT FROM chunk WHERE owner = $1 AND opened_at >= $2 AND done_at IS NULL)`, id, from)
	b.Queue(`UPDATE process SET beat_at = `+postgres.Now+` - make_interval(secs => $2) WHERE id = $1`, id, DeadAfter.Seconds())
	if err := p.config.Pool.SendBatch(ctx, &b).Close(); err != nil {
		p.config.Log.Warn("cannot remove this process from the members", "error", err)
	}
}

// KnownProcesses is the query of the processes with a heartbeat within the last minute. Upkeep deletes the rows of the others, whose
// chunks then have no owner. It reads from that time on: while an old snapshot is open, the table keeps a dead row of each heartbeat.
const KnownProcesses = `SELECT id FROM process WHERE beat_at > (SELECT ` + postgres.Now + `) - interval '1 minute'`

// LiveUntil makes this process count as living until a moment, though it sends no heartbeats. Tests that work step by step use it.
func (p *Member) LiveUntil(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beaten = at
}
