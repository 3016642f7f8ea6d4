package push

import (
	"slices"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
)

// healthBounds are the upper bounds, in milliseconds, of the times that requests take; the last bucket has no bound.
var healthBounds = [...]int64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000}

const (
	healthMinutes  = 15
	healthLast     = 20
	healthError    = 300    // bytes of an error
	mostHealth     = 10_000 // endpoints that a process remembers
	mostHealthRows = 100    // written at once
	healthAgain    = 5 * time.Second
)

// healthMinute counts the requests to an endpoint that ended within a minute.
type healthMinute struct {
	At        int64                        `json:"at"` // minutes since 1970
	Succeeded int64                        `json:"s"`
	Failed    int64                        `json:"f"`
	Took      [len(healthBounds) + 1]int64 `json:"t"` // by healthBounds
}

// Answered is a request to an endpoint that has ended.
type Answered struct {
	At     time.Time `json:"at"`
	TickID string    `json:"tick_id"` // of the first tick of the request
	Status *int32    `json:"status"`  // nil: there was no answer
	TookMS int64     `json:"took_ms"`
	Error  *string   `json:"error,omitempty"`
}

// endpointHealth is what a process knows of an endpoint.
type endpointHealth struct {
	minutes []healthMinute // the newest last
	last    []Answered     // the newest last
	dirty   bool           // something has ended since it was written
	busy    bool           // when it was written, requests were under way or waited, or the breaker was open
	written time.Time
	stored  storedAt
}

// storedAt names the row of an endpoint that was written last: its time, and the process that wrote it. A process may get another number.
type storedAt struct {
	at time.Time
	by int64
}

// healthBook holds the health of the endpoints that a process pushes to. It is safe for concurrent use.
type healthBook struct {
	mu sync.Mutex
	of map[EndpointName]*endpointHealth
}

// note counts a request that has ended.
func (h *healthBook) note(name EndpointName, a Answered, well bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil || len(h.of) >= mostHealth && h.of[name] == nil {
		h.of = map[EndpointName]*endpointHealth{}
	}
	e := h.of[name]
	if e == nil {
		e = &endpointHealth{}
		h.of[name] = e
	}
	minute := a.At.Unix() / 60
	if n := len(e.minutes); n == 0 || e.minutes[n-1].At < minute {
		e.minutes = append(e.minutes, healthMinute{At: minute})
		e.minutes = e.minutes[max(0, len(e.minutes)-healthMinutes):]
	}
	m := &e.minutes[len(e.minutes)-1]
	if well {
		m.Succeeded++
	} else {
		m.Failed++
	}
	bucket, _ := slices.BinarySearch(healthBounds[:], a.TookMS)
	m.Took[bucket]++
	if a.Error != nil && len(*a.Error) > healthError {
		a.Error = new(record.Valid((*a.Error)[:healthError]))
	}
	e.last = append(e.last, a)
	e.last = e.last[max(0, len(e.last)-healthLast):]
	e.dirty = true
}

// load is what an endpoint has in a process at a moment.
type load struct {
	queued, inFlight int
	breaker          string
	openUntil        *time.Time
}

func (l load) busy() bool { return l.queued > 0 || l.inFlight > 0 || l.breaker != breakerClosed }

// healthRow is a row to write.
type healthRow struct {
	name    EndpointName
	load    load
	minutes []healthMinute
	last    []Answered
	stored  storedAt // the row that it replaces
}

// due returns the rows to write now: of endpoints of which a request has ended, and now and then of those that are busy or were. Those that
// were written the longest ago come first.
func (h *healthBook) due(now time.Time, loads map[EndpointName]load) (rows []healthRow) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range loads {
		if h.of[name] == nil && len(h.of) < mostHealth {
			if h.of == nil {
				h.of = map[EndpointName]*endpointHealth{}
			}
			h.of[name] = &endpointHealth{}
		}
	}
	var names []EndpointName
	for name, e := range h.of {
		l, busy := loads[name]
		if e.dirty || busy && l.busy() && now.Sub(e.written) >= healthAgain || !busy && e.busy {
			names = append(names, name)
		} else if !busy && now.Sub(e.written) > healthMinutes*time.Minute {
			delete(h.of, name)
		}
	}
	slices.SortFunc(names, func(a, b EndpointName) int { return h.of[a].written.Compare(h.of[b].written) })
	for _, name := range names[:min(len(names), mostHealthRows)] {
		e := h.of[name]
		l, known := loads[name]
		if !known {
			l = load{breaker: breakerClosed}
		}
		rows = append(rows, healthRow{name, l, slices.Clone(e.minutes), slices.Clone(e.last), e.stored})
		e.dirty, e.busy, e.written = false, l.busy(), now
	}
	return rows
}

// wrote notes where rows were written.
func (h *healthBook) wrote(rows []healthRow, stored storedAt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range rows {
		if e := h.of[r.name]; e != nil {
			e.stored = stored
		}
	}
}

// loads returns what each endpoint has in this process now.
func (s *sender) loads(now time.Time) map[EndpointName]load {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[EndpointName]load, len(s.queues))
	for name, q := range s.queues {
		l := load{inFlight: q.slots, queued: len(q.waiting), breaker: breakerClosed}
		for _, batch := range q.overflow {
			l.queued += len(batch.Tries)
		}
		all[name] = l
	}
	for name, b := range s.breakers {
		l := all[name]
		l.breaker = b.state(now)
		if l.breaker == breakerOpen {
			l.openUntil = new(b.until.UTC())
		}
		all[name] = l
	}
	return all
}
