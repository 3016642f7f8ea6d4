package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// delivery is one time that a tick came to a handler, which took it.
type delivery struct {
	at   time.Time
	tick carillon.Tick[json.RawMessage]
}

// ledger is what the handlers of a run have been given.
type ledger struct {
	mu       sync.Mutex
	slots    map[slot][]delivery
	badSigns int
	step     func() // called for each slot that is new
}

func newLedger(step func()) *ledger {
	return &ledger{slots: map[slot][]delivery{}, step: step}
}

// take is a handler for workers. It succeeds always.
func (l *ledger) take(_ context.Context, t carillon.Tick[json.RawMessage]) error {
	at := time.Now()
	s := slot{t.Workflow, t.Key, t.Timestamp.Unix()}
	l.mu.Lock()
	before := l.slots[s]
	l.slots[s] = append(before, delivery{at, t})
	l.mu.Unlock()
	if before == nil {
		l.step()
	}
	return nil
}

// refuse counts a request whose signature is not Carillon's.
func (l *ledger) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.badSigns++
}

// filled is for how many slots something came.
func (l *ledger) filled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.slots)
}

// of is what came for a slot, in that order.
func (l *ledger) of(s slot) []delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slots[s]
}

// unplanned counts the slots that the plan does not have.
func (l *ledger) unplanned(plan []*planned) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.slots)
	for _, p := range plan {
		for i := range p.nominal {
			if l.slots[p.slot(i)] != nil {
				n--
			}
		}
	}
	return n
}
