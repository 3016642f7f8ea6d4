package push

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillonhq/carillon/tenants"
)

// Results that could not be written wait aside, in a queue of their tenant, so that they do not delay other tenants. They are written
// again after a pause that doubles. After keptAside they are dropped, and this process takes their chunks again.
const (
	keptAside     = 30 * time.Second
	mostOfTenant  = 5_000  // results of one tenant aside; beyond this they are dropped
	mostAsideAll  = 50_000 // of all tenants
	shortestPause = 50 * time.Millisecond
	longestPause  = 5 * time.Second
	lastTries     = 2 * time.Second // for all that is aside when this process ends
)

// How long a write of results waits for a lock that another transaction holds: little while other tenants' results wait behind it.
const (
	firstLockWait = 500 * time.Millisecond
	asideLockWait = 5 * time.Second
)

// unwritten holds the results of one tenant that could not be written.
type unwritten struct {
	waiting []outcome
	since   time.Time
	pause   time.Duration
	next    time.Time // when they are tried again
	writing bool
}

// aside holds the results that could not be written.
type aside struct {
	of      map[tenants.ID]*unwritten
	ticks   int           // how many wait
	kept    time.Duration // after it, results are dropped
	again   chan struct{} // something was set aside
	writers sync.WaitGroup
	cancel  context.CancelFunc // ends the writers
}

func newAside() aside {
	return aside{of: map[tenants.ID]*unwritten{}, kept: keptAside, again: make(chan struct{}, 1), cancel: func() {}}
}

// setAside queues results of a tenant whose last write failed, or drops them if there are too many. The caller holds r.mu.
func (r *results) setAside(tenant tenants.ID, outcomes []outcome) {
	a := r.aside.of[tenant]
	if a == nil {
		now := time.Now()
		a = &unwritten{since: now, pause: shortestPause, next: now.Add(shortestPause)}
		r.aside.of[tenant] = a
	}
	if len(a.waiting)+len(outcomes) > mostOfTenant || r.aside.ticks+len(outcomes) > mostAsideAll {
		r.d.log.Error("results are dropped: too many wait aside", "tenant", tenant, "ticks", len(outcomes))
		r.d.sender.forget(outcomes)
		return
	}
	a.waiting, r.aside.ticks = append(a.waiting, outcomes...), r.aside.ticks+len(outcomes)
	select {
	case r.aside.again <- struct{}{}:
	default:
	}
}

// writeAside writes results aside again, until ctx ends.
func (r *results) writeAside(ctx context.Context) {
	timer := time.NewTimer(longestPause)
	defer timer.Stop()
	for {
		tenant, outcomes, wait := r.nextAside(time.Now())
		if len(outcomes) > 0 {
			err := r.writeTenant(ctx, tenant, outcomes, asideLockWait)
			r.wroteAside(tenant, len(outcomes), time.Now(), err)
			continue
		}
		timer.Reset(wait)
		select {
		case <-r.aside.again:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// nextAside returns the results to write next, or how long to wait for them. It drops results that are too old.
func (r *results) nextAside(now time.Time) (next tenants.ID, outcomes []outcome, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait = longestPause
	for tenant, a := range r.aside.of {
		switch {
		case a.writing:
		case now.Sub(a.since) > r.aside.kept:
			r.dropAside(tenant, a)
		case a.next.After(now):
			wait = min(wait, a.next.Sub(now))
		case outcomes == nil || a.next.Before(r.aside.of[next].next):
			next, outcomes = tenant, a.waiting[:min(len(a.waiting), mostResults)]
		}
	}
	if outcomes != nil {
		r.aside.of[next].writing = true
	}
	return next, slices.Clone(outcomes), wait
}

// dropAside drops the results of a tenant. The caller holds r.mu.
func (r *results) dropAside(tenant tenants.ID, a *unwritten) {
	r.d.log.Error("results could not be written, and their chunks are taken again", "tenant", tenant, "ticks", len(a.waiting))
	r.d.sender.forget(a.waiting)
	r.aside.ticks -= len(a.waiting)
	delete(r.aside.of, tenant)
}

// wroteAside records how a write of the first n results of a tenant ended.
func (r *results) wroteAside(tenant tenants.ID, n int, now time.Time, err error) {
	_, alive := r.d.member.Self()
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.aside.of[tenant]
	a.writing = false
	switch {
	case !alive:
		r.dropAside(tenant, a)
	case err != nil:
		r.d.log.Warn("cannot write results yet", "tenant", tenant, "ticks", n, "error", err)
		a.pause = min(2*a.pause, longestPause)
		a.next = now.Add(a.pause)
	default:
		a.waiting, r.aside.ticks = slices.Delete(a.waiting, 0, n), r.aside.ticks-n
		a.since, a.pause, a.next = now, shortestPause, now
		if len(a.waiting) == 0 {
			delete(r.aside.of, tenant)
		}
	}
}

// finishAside writes the results aside once more, within lastTries. Other processes take the chunks of the rest.
func (r *results) finishAside() {
	ctx, cancel := context.WithTimeout(context.Background(), lastTries)
	defer cancel()
	for tenant, a := range r.aside.of {
		for part := range slices.Chunk(a.waiting, mostResults) {
			if err := r.writeTenant(ctx, tenant, part, firstLockWait); err != nil {
				r.d.log.Error("cannot write results", "tenant", tenant, "ticks", len(part), "error", err)
				break
			}
		}
	}
}
