package schedules

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	mostGroups = 2   // of one caller are stored at once, single puts included
	mostInOne  = 100 // puts are stored together
)

// groups coalesces the puts of one caller: puts that come while others of the caller are being stored wait, and are then stored in one
// transaction. A put that comes while nothing is under way does not wait. There is no goroutine: the first put that waits stores
// for all of them.
type groups struct {
	mu      sync.Mutex
	callers map[caller]*queue
}

type caller struct {
	tenant tenants.ID
	by     string
}

// queue holds the puts of one caller that wait for their turn.
type queue struct {
	busy    int // how many goroutines are storing
	waiting []*waiter
}

// waiter is a put that waits. It is told once: to store a group, itself among it; that it was stored; or to store itself.
type waiter struct {
	*Item
	turn chan turn
}

type turn struct {
	group   []*waiter // the puts that the waiter stores, its own among them
	done    bool
	unknown bool // it may have been stored, and nobody knows
}

// put stores an item: together with others if some are under way. It stores the item alone if there are none, or if the group failed.
func (g *groups) put(ctx context.Context, s *Schedules, by change, it *Item) error {
	c := caller{by.tenant, by.by}
	w, waits := g.enter(c, it)
	if !waits {
		defer g.handOver(c)
		return s.putAlone(ctx, by, it)
	}
	var now turn
	select {
	case now = <-w.turn:
	case <-ctx.Done():
		if g.leave(c, w) {
			return context.Cause(ctx)
		}
		now = <-w.turn // it has just been told
	}
	if now.group != nil {
		now = g.lead(ctx, s, by, now.group)
	}
	if now.unknown {
		postgres.NoteChange(ctx)
	}
	if !now.done {
		return s.putAlone(ctx, by, it)
	}
	if it.Result == Failed {
		return it.Fault
	}
	return nil
}

// enter lets the item wait if others are under way.
func (g *groups) enter(c caller, it *Item) (w *waiter, waits bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.callers[c]
	if q == nil {
		q = &queue{}
		g.callers[c] = q
	}
	if q.busy < mostGroups && len(q.waiting) == 0 {
		q.busy++
		return nil, false
	}
	w = &waiter{it, make(chan turn, 1)}
	q.waiting = append(q.waiting, w)
	return w, true
}

// leave removes a put whose client is gone, and reports whether the put was still waiting.
func (g *groups) leave(c caller, w *waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.callers[c]
	i := slices.Index(q.waiting, w) // the queue is there: w is in it, or is being stored
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return true
}

// handOver ends a turn. The first put that waits gets the next turn, with the puts behind it that name other schedules.
func (g *groups) handOver(c caller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.callers[c]
	if len(q.waiting) == 0 {
		if q.busy--; q.busy == 0 {
			delete(g.callers, c)
		}
		return
	}
	var group, rest []*waiter
	named := map[[2]string]bool{}
	for _, w := range q.waiting {
		name := [2]string{w.Workflow, w.Key}
		if named[name] || len(group) == mostInOne {
			rest = append(rest, w)
			continue
		}
		named[name] = true
		group = append(group, w)
	}
	q.waiting = rest
	group[0].turn <- turn{group: group}
}

// lead stores a group and tells the other puts. If the group cannot be stored, each put stores itself, so that none fails because of
// another. It goes on after its own client is gone, because the others wait.
func (g *groups) lead(ctx context.Context, s *Schedules, by change, group []*waiter) (ended turn) {
	defer g.handOver(caller{by.tenant, by.by})
	defer func() {
		for _, w := range group[1:] {
			w.turn <- ended
		}
	}()
	if len(group) == 1 {
		return turn{}
	}
	items := make([]*Item, len(group))
	for i, w := range group {
		items[i] = w.Item
	}
	ctx, outcome := postgres.Watch(context.WithoutCancel(ctx))
	err := s.storePuts(ctx, by, items)
	if err != nil && !errors.Is(err, errRaced) {
		s.Log.Warn("cannot store a group of puts together: each put is stored alone", "puts", len(group), "error", err)
	}
	return turn{done: err == nil, unknown: err != nil && outcome.MayHaveChanged()}
}
