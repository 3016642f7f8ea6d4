package carillon

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// held is the ticks that are leased and not yet reported.
type held struct {
	mu    sync.Mutex
	ticks map[string]*hold // by tick id
}

// hold is one held tick.
type hold struct {
	id, token string
	end       context.CancelCauseFunc

	until     time.Time // when the lease ends; under held.mu
	cancelled bool      // the handler must stop and report it; under held.mu
}

// add holds a tick. If a tick with the same id is still held, its lease was lost: otherwise it could not have been leased again.
func (h *held) add(t *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.ticks[t.id]; before != nil {
		before.end(ErrLeaseLost)
	}
	h.ticks[t.id] = t
}

// drop stops holding a tick.
func (h *held) drop(t *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ticks[t.id] == t {
		delete(h.ticks, t.id)
	}
}

// has reports whether a tick is still held. Otherwise its outcome need not be reported.
func (h *held) has(t *hold) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ticks[t.id] == t
}

// aging drops the ticks whose lease has ended, and returns those whose lease ends before by.
func (h *held) aging(now, by time.Time) []*hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	var aging []*hold
	for id, t := range h.ticks {
		switch {
		case !now.Before(t.until):
			t.end(ErrLeaseLost)
			delete(h.ticks, id)
		case !t.cancelled && t.until.Before(by):
			aging = append(aging, t)
		}
	}
	return aging
}

// kept notes the answer to a heartbeat.
func (h *held) kept(t *hold, v verdict, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case v.Status < http.StatusMultipleChoices:
		t.until = until
	case v.Code == "cancelled":
		t.cancelled = true
		t.end(ErrCancelled)
	case v.Status == http.StatusConflict || v.Status == http.StatusNotFound:
		t.end(ErrLeaseLost)
		if h.ticks[t.id] == t {
			delete(h.ticks, t.id)
		}
	}
}

// beat extends the lease of each held tick when a quarter of it has passed.
func (s *shift) beat() {
	every := time.NewTicker(s.config.Lease / 8)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-s.beating.Done():
			return
		}
		now := time.Now()
		for ticks := range slices.Chunk(s.held.aging(now, now.Add(s.config.Lease*3/4)), leaseMost) {
			s.beatOnce(ticks)
		}
	}
}

func (s *shift) beatOnce(ticks []*hold) {
	ctx, cancel := context.WithTimeout(s.beating, s.config.Lease/4)
	defer cancel()
	beats := make([]heartbeat, len(ticks))
	byID := make(map[string]*hold, len(ticks))
	for i, t := range ticks {
		beats[i] = heartbeat{TickID: t.id, LeaseToken: t.token, Lease: seconds(s.config.Lease)}
		byID[t.id] = t
	}
	until := time.Now().Add(s.config.Lease)
	verdicts, err := batch(ctx, s.client, "heartbeat", beats)
	if err != nil {
		if s.beating.Err() == nil {
			s.log.Warn("cannot extend leases", "ticks", len(ticks), "error", err)
		}
		return
	}
	for _, v := range verdicts {
		if t := byID[v.TickID]; t != nil {
			s.held.kept(t, v, until)
		}
	}
}
