package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// delivery is one delivery of a tick to a handler.
type delivery struct {
	at   time.Time
	tick carillon.Tick[json.RawMessage]
}

// ledger notes the deliveries to the handlers of a run.
type ledger struct {
	mu       sync.Mutex
	slots    map[slot][]delivery
	badSigns int
	step     func() // called for each new slot
}

func newLedger(step func()) *ledger {
	return &ledger{slots: map[slot][]delivery{}, step: step}
}

// take is a handler for workers. It always succeeds.
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

// refuse counts a request with a wrong signature.
func (l *ledger) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.badSigns++
}

// filled returns the number of slots with a delivery.
func (l *ledger) filled() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.slots)
}

// of returns the deliveries of a slot, in their order.
func (l *ledger) of(s slot) []delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.slots[s]
}

// unplanned counts the slots that are not in the plan.
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
