package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// received is an endpoint that remembers the ticks for each time of each schedule.
type received struct {
	mu       sync.Mutex
	ticks    map[nominal]*receipt
	requests int
}

type nominal struct {
	key string
	due time.Time
}

// receipt is the first arrival for a time, and the ids of all its ticks.
type receipt struct {
	at  time.Time
	ids map[string]bool
}

func newReceived() *received { return &received{ticks: map[nominal]*receipt{}} }

// ServeHTTP receives a tick.
func (r *received) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	now := time.Now()
	var t carillon.Tick[json.RawMessage]
	if err := json.NewDecoder(request.Body).Decode(&t); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	is := nominal{t.Key, t.Timestamp}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if r.ticks[is] == nil {
		r.ticks[is] = &receipt{now, map[string]bool{}}
	}
	r.ticks[is].ids[t.TickID] = true
	w.WriteHeader(http.StatusNoContent)
}

func (r *received) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ticks)
}

// each calls fn for each tick.
func (r *received) each(fn func(due time.Time, one *receipt)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for is, one := range r.ticks {
		fn(is.due, one)
	}
}

// first returns the arrival of the first tick with a nominal time after a moment, or a far time if none arrived.
func (r *received) first(after time.Time) time.Time {
	first := after.Add(time.Hour)
	r.each(func(due time.Time, one *receipt) {
		if due.After(after) && one.at.Before(first) {
			first = one.at
		}
	})
	return first
}

// lastOverdue returns the last arrival of an overdue tick after a moment, or that moment if there was none.
func (r *received) lastOverdue(after time.Time) time.Time {
	last := after
	r.each(func(due time.Time, one *receipt) {
		if one.at.Sub(due) > overdue && one.at.After(last) {
			last = one.at
		}
	})
	return last
}

func (r *received) early() (n int) {
	r.each(func(due time.Time, one *receipt) {
		if one.at.Before(due) {
			n++
		}
	})
	return n
}

// doubled counts ticks beyond the first for one time of one schedule. The same tick may arrive again.
func (r *received) doubled() (n int) {
	r.each(func(_ time.Time, one *receipt) { n += len(one.ids) - 1 })
	return n
}

const putWorkflow = "puts"

// puts are schedules that a client stores, one after another.
type puts struct {
	acknowledged []string // keys; read it after stop has returned
	stop         func()
}

// putOn stores schedules until it is stopped. It goes on after requests without an answer.
func (d *deliveries) putOn(ctx context.Context) *puts {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	p := &puts{stop: func() { cancel(); <-done }}
	go func() {
		defer close(done)
		spec := carillon.Spec{At: carillon.Strings{"2090-01-01T00:00:00"}}
		for i := 0; ctx.Err() == nil; i++ {
			key := fmt.Sprintf("put_%06d", i)
			limited, end := context.WithTimeout(ctx, failPutWithin)
			if _, err := d.client.Schedules.Put(limited, putWorkflow, key, carillon.Params{Spec: spec}); err == nil {
				p.acknowledged = append(p.acknowledged, key)
			}
			end()
			select {
			case <-ctx.Done():
			case <-time.After(failPutEvery):
			}
		}
	}()
	return p
}
