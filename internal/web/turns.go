package web

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// turns bounds how many requests use much CPU at the same time, so that small requests always find a free processor. Turns are short.
// Waiting tenants get them round-robin; the requests of a tenant get them in order of arrival.
type turns struct {
	mu    sync.Mutex
	free  int
	queue []*turnQueue // the waiting tenants
}

type turnQueue struct {
	tenant  int32
	waiting []chan struct{} // each is closed when its request's turn begins
}

// muchWork is the number of bytes of a body or an answer from which the work needs a turn. Less takes a millisecond at most.
const muchWork = 64 << 10

func newTurns() *turns { return &turns{free: max(1, runtime.GOMAXPROCS(0)/2)} }

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
}

// begin waits until the request has its turn.
func (t *turn) begin(ctx context.Context) error {
	if t == nil || t.account == nil || t.has {
		return nil
	}
	err := t.account.budget.turns.begin(ctx, t.account.tenant)
	t.has = err == nil
	return err
}

// end gives the turn back, if the request has it.
func (t *turn) end() {
	if t != nil && t.has {
		t.account.budget.turns.end()
		t.has = false
	}
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
