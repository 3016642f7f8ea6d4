package web

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// turns bounds how many requests use much CPU at the same time, so that small requests always find a free processor. Turns are short.
// Waiting tenants get them round-robin; the requests of a tenant get them in order of arrival. If turns leave less than two processors
// free, each is followed by a rest as long as itself while other tenants make requests.
type turns struct {
	rests bool

	mu    sync.Mutex
	free  int
	queue []*turnQueue // the waiting tenants
	seen  [2]seenTenant
}

// seenTenant is a tenant that made a request, and when it last did. The first of turns.seen is the one that did so last, and the second
// another one.
type seenTenant struct {
	tenant int32
	at     time.Time
}

type turnQueue struct {
	tenant  int32
	waiting []chan struct{} // each is closed when its request's turn begins
}

// muchWork is the number of bytes of a body or an answer from which the work needs a turn. Less takes a millisecond at most.
const muchWork = 64 << 10

const (
	othersSeen  = time.Second // before a turn ends: then it is followed by a rest
	longestRest = 100 * time.Millisecond
)

// mostTurns is how many turns there are at the same time.
func mostTurns() int { return max(1, runtime.GOMAXPROCS(0)/2) }

func newTurns() *turns {
	n := mostTurns()
	return &turns{free: n, rests: runtime.GOMAXPROCS(0)-n < 2}
}

// saw records that a tenant makes a request.
func (t *turns) saw(tenant int32, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[0].tenant != tenant {
		t.seen[1] = t.seen[0]
	}
	t.seen[0] = seenTenant{tenant, now}
}

// rest returns the rest after a turn of a tenant that has taken so long.
func (t *turns) rest(tenant int32, took time.Duration, now time.Time) time.Duration {
	if !t.rests || !t.others(tenant, now) {
		return 0
	}
	return min(took, longestRest)
}

// others reports whether another tenant has made a request within othersSeen.
func (t *turns) others(tenant int32, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	other := t.seen[0]
	if other.tenant == tenant {
		other = t.seen[1]
	}
	return now.Sub(other.at) <= othersSeen
}

// begin waits for a turn. end gives the turn to the next request.
func (t *turns) begin(ctx context.Context, tenant int32) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	at := slices.IndexFunc(t.queue, func(q *turnQueue) bool { return q.tenant == tenant })
	if at < 0 {
		at, t.queue = len(t.queue), append(t.queue, &turnQueue{tenant: tenant})
	}
	t.queue[at].waiting = append(t.queue[at].waiting, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	if !t.leave(tenant, mine) {
		t.end()
	}
	return ctx.Err()
}

// leave removes a request from the queue. It reports false if the request's turn has already begun.
func (t *turns) leave(tenant int32, mine chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, q := range t.queue {
		at := slices.Index(q.waiting, mine)
		if q.tenant != tenant || at < 0 {
			continue
		}
		if q.waiting = slices.Delete(q.waiting, at, at+1); len(q.waiting) == 0 {
			t.queue = slices.Delete(t.queue, i, i+1)
		}
		return true
	}
	return false
}

func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		t.free++
		return
	}
	next := t.queue[0]
	t.queue = t.queue[1:]
	close(next.waiting[0])
	if next.waiting = next.waiting[1:]; len(next.waiting) > 0 {
		t.queue = append(t.queue, next)
	}
}

// turn is the turn of one request; has reports whether the request has it now. A nil turn, or one without an account, never waits.
type turn struct {
	account *account
	has     bool
	began   time.Time
}

// begin waits until the request has its turn.
func (t *turn) begin(ctx context.Context) error {
	if t == nil || t.account == nil || t.has {
		return nil
	}
	err := t.account.budget.turns.begin(ctx, t.account.tenant)
	t.has, t.began = err == nil, time.Now()
	return err
}

// end gives the turn back, if the request has it.
func (t *turn) end() {
	if t == nil || !t.has {
		return
	}
	t.has = false
	all, now := t.account.budget.turns, time.Now()
	if rest := all.rest(t.account.tenant, now.Sub(t.began), now); rest > 0 {
		time.AfterFunc(rest, all.end)
		return
	}
	all.end()
}

// lend begins a turn that ends by itself after most. Before that, keep makes it a turn that only end ends; the caller calls keep in any
// case.
func (t *turn) lend(ctx context.Context, most time.Duration) (keep func(), err error) {
	if err := t.begin(ctx); err != nil || !t.has {
		return func() {}, err
	}
	lent := *t
	t.has = false
	timer := time.AfterFunc(most, lent.end)
	return func() {
		if timer.Stop() {
			t.has = true
		}
	}, nil
}

// inTurn runs work on that many bytes. It waits for a turn first if the bytes are many.
func inTurn(ctx context.Context, bytes int, work func() error) error {
	if bytes < muchWork {
		return work()
	}
	t := turn{account: accountOf(ctx)}
	if err := t.begin(ctx); err != nil {
		return err
	}
	defer t.end()
	return work()
}
