package web

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// turns bounds how many requests use much CPU at a time, so that the others find a processor free. Turns are short; tenants that wait
// get them in a circle, and a tenant's requests in the order in which they came.
type turns struct {
	mu   sync.Mutex
	free int
	line []*turnLine // tenants that wait
}

type turnLine struct {
	tenant  int32
	waiting []chan struct{} // closed when it is the request's turn
}

// muchWork is how many bytes of a body or an answer take a turn. Less takes a millisecond at most.
const muchWork = 64 << 10

func newTurns() *turns { return &turns{free: max(1, runtime.GOMAXPROCS(0)/2)} }

// begin waits for a turn of a tenant. end gives it back.
func (t *turns) begin(ctx context.Context, tenant int32) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	at := slices.IndexFunc(t.line, func(l *turnLine) bool { return l.tenant == tenant })
	if at < 0 {
		at, t.line = len(t.line), append(t.line, &turnLine{tenant: tenant})
	}
	t.line[at].waiting = append(t.line[at].waiting, mine)
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

// leave takes a request out of the line. It reports false if it is its turn by now.
func (t *turns) leave(tenant int32, mine chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, l := range t.line {
		at := slices.Index(l.waiting, mine)
		if l.tenant != tenant || at < 0 {
			continue
		}
		if l.waiting = slices.Delete(l.waiting, at, at+1); len(l.waiting) == 0 {
			t.line = slices.Delete(t.line, i, i+1)
		}
		return true
	}
	return false
}

func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) == 0 {
		t.free++
		return
	}
	next := t.line[0]
	t.line = t.line[1:]
	close(next.waiting[0])
	if next.waiting = next.waiting[1:]; len(next.waiting) > 0 {
		t.line = append(t.line, next)
	}
}

// turn is a request's use of turns: it has one or none. A nil turn always may go on.
type turn struct {
	account *account
	has     bool
}

// begin waits until it is the request's turn, if it is not.
func (t *turn) begin(ctx context.Context) error {
	if t == nil || t.account == nil || t.has {
		return nil
	}
	err := t.account.budget.turns.begin(ctx, t.account.tenant)
	t.has = err == nil
	return err
}

// end lets others go on.
func (t *turn) end() {
	if t != nil && t.has {
		t.account.budget.turns.end()
		t.has = false
	}
}

// inTurn does work on so many bytes, when it is the request's turn if they are many.
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
