package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	beatEvery   = time.Second
	DeadAfter   = 5 * time.Second         // others take what a silent process owns
	idleAfter   = 2500 * time.Millisecond // its shards are swept by others: two may sweep one, as they wait at its lock
	silentAfter = 3500 * time.Millisecond // a process that could not beat stops sending, well before others take over
)

// Member is this process among the others: it beats, and knows who else does.
type Member struct {
	Membership
	lapses chan chan<- struct{}

	Mu      sync.Mutex
	id      int64
	Beaten  time.Time // on our own monotonic clock, from before the beat was sent
	lapsed  bool      // it was silent too long: what it held is to be given up
	sweeps  []int64   // the living that sweep
	opening []int64   // the living that dispatch
}

// Membership is what a process is known by, and what it joins the others with.
type Membership struct {
	Pool                 *pgxpool.Pool
	Log                  *slog.Logger
	Name                 string                    // for people
	Sweeping, Dispatches bool                      // which part of the work it does
	Recheck              func(ctx context.Context) // gives up connections that may lead to a host that has died; nil: the pool is reset
}

// NewMember returns a Member that has not joined yet.
func NewMember(m Membership) *Member {
	return &Member{Membership: m, lapses: make(chan chan<- struct{})}
}

// Register joins the other processes under a new number, and removes those of this machine that are gone.
func (p *Member) Register(ctx context.Context) error {
	at := time.Now()
	var id int64
	err := p.Pool.QueryRow(ctx, `INSERT INTO process (name, place, pid, sweeps, dispatches) VALUES ($1, $2, $3, $4, $5) RETURNING id`,
		p.Name, whereabouts(), os.Getpid(), p.Sweeping, p.Dispatches).Scan(&id)
	if err != nil {
		return fmt.Errorf("join the processes: %w", err)
	}
	if err := p.bury(ctx); err != nil {
		return err
	}
	p.Mu.Lock()
	p.id, p.Beaten, p.lapsed = id, at, false
	p.Mu.Unlock()
	return p.meet(ctx)
}

// bury marks the processes as dead that ran where this one runs and are no more, so that what they held is taken at once:
// most often it is the one in whose place this one was started.
func (p *Member) bury(ctx context.Context) error {
	here := whereabouts()
	if here == "" {
		return nil
	}
	rows, err := p.Pool.Query(ctx, `SELECT id, pid FROM process WHERE place = $1`, here)
	if err != nil {
		return fmt.Errorf("look for dead processes: %w", err)
	}
	var dead []int64
	var id int64
	var pid int
	_, err = pgx.ForEachRow(rows, []any{&id, &pid}, func() error {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
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
	if _, err := p.Pool.Exec(ctx, `
		UPDATE process
		SET beat_at = `+postgres.Now+` - make_interval(secs => $2)
		WHERE id = ANY ($1) AND beat_at > `+postgres.Now+` - make_interval(secs => $2)`, dead, DeadAfter.Seconds()); err != nil {
		return fmt.Errorf("bury dead processes: %w", err)
	}
	return nil
}

// whereabouts says where this process's pid counts: which boot of which machine, and which namespace of it. It is empty where
// the system does not tell.
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
// has dropped all that it held and has registered under a new number.
func (p *Member) Self() (id int64, alive bool) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	p.lapsed = p.lapsed || time.Since(p.Beaten) >= silentAfter
	return p.id, !p.lapsed
}

// Beat tells the others each second that this process lives. The first beat that fails, by an error or in time, makes the
// process look for the primary again: the host of its connections may have died without a word.
func (p *Member) Beat(ctx context.Context) {
	loop.Every(ctx, p.Log, beatEvery, "beat", func(ctx context.Context) error {
		err := p.BeatOnce(ctx)
		if err != nil && ctx.Err() == nil {
			p.lookForPrimary(ctx)
		}
		return err
	})
}

// beatWithin is also for a process that registers again.
const beatWithin = 2 * time.Second

// BeatOnce renews the process's row. A process that was silent too long gives up all that it held and registers again,
// under another number.
func (p *Member) BeatOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatWithin)
	defer cancel()
	id, alive := p.Self()
	if !alive {
		p.Log.Warn("this process was silent for too long and begins anew", "process", id)
		return p.registerAgain(ctx)
	}
	at := time.Now()
	done, err := p.Pool.Exec(ctx, `
		UPDATE process
		SET beat_at = `+postgres.Now+`
		WHERE id = $1 AND beat_at > (SELECT `+postgres.Now+`) - make_interval(secs => $2)`, id, DeadAfter.Seconds())
	if err != nil {
		return err
	}
	if done.RowsAffected() == 0 {
		return p.registerAgain(ctx)
	}
	p.Mu.Lock()
	p.Beaten = at
	p.Mu.Unlock()
	return p.meet(ctx)
}

// Lapsed returns the channel that reports each time that this process was silent for too long. The receiver drops all that the
// process held, and then closes the channel that it received: the process registers again only after that.
func (p *Member) Lapsed() <-chan chan<- struct{} { return p.lapses }

// registerAgain waits until what this process held is dropped, and registers.
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

// lookForPrimary gives up connections that may lead to a host that has died.
func (p *Member) lookForPrimary(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recheckWithin)
	defer cancel()
	if p.Recheck == nil {
		p.Pool.Reset()
		return
	}
	p.Recheck(ctx)
}

// meet learns who lives.
func (p *Member) meet(ctx context.Context) error {
	rows, err := p.Pool.Query(ctx, `
		SELECT id, sweeps, dispatches
		FROM process
		WHERE beat_at > (SELECT `+postgres.Now+`) - make_interval(secs => $1)`, idleAfter.Seconds())
	if err != nil {
		return fmt.Errorf("meet the processes: %w", err)
	}
	defer rows.Close()
	var living, opening []int64
	for rows.Next() {
		var id int64
		var sweeps, dispatches bool
		if err := rows.Scan(&id, &sweeps, &dispatches); err != nil {
			return fmt.Errorf("meet the processes: %w", err)
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
	p.Mu.Lock()
	p.sweeps, p.opening = living, opening
	p.Mu.Unlock()
	return rows.Err()
}

// Dispatching is how many living processes dispatch, this one at least.
func (p *Member) Dispatching() int {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	return max(1, len(p.opening))
}

// Opens tells whether it is this process that opens a run which all processes were told of. Two that disagree for a moment do no harm:
// an open chunk is not opened again.
func (p *Member) Opens(chunk int64) bool {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	n := int64(len(p.opening))
	return n > 0 && p.opening[chunk%n] == p.id
}

// Shards are those that this process is to sweep: each shard goes to the living process that scores highest for it,
// so that one that comes or goes moves no other's. Two that disagree for a moment wait for one another at the lock.
func (p *Member) Shards() []int16 {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	var mine []int16
	for shard := range int16(cohorts.Shards) {
		best, bestScore := int64(0), uint64(0)
		for _, id := range p.sweeps {
			if s := score(id, shard); best == 0 || s > bestScore {
				best, bestScore = id, s
			}
		}
		if best == p.id {
			mine = append(mine, shard)
		}
	}
	return mine
}

func score(process int64, shard int16) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%d", shard, process)
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>31
}

// Leave deletes the process's row if no chunk that it opened since a moment is open. Else it marks the process dead: others take its
// chunks.
func (p *Member) Leave(ctx context.Context, from time.Time) {
	id, _ := p.Self()
	var b pgx.Batch
	b.Queue(`DELETE FROM process WHERE id = $1 AND NOT EXISTS (SELECT FROM chunk WHERE owner = $1 AND opened_at >= $2 AND done_at IS NULL)`, id, from)
	b.Queue(`UPDATE process SET beat_at = `+postgres.Now+` - make_interval(secs => $2) WHERE id = $1`, id, DeadAfter.Seconds())
	if err := p.Pool.SendBatch(ctx, &b).Close(); err != nil {
		p.Log.Warn("cannot leave the processes", "error", err)
	}
}
