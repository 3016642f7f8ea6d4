package chaos

import (
	"sync"
	"time"
)

// operation is one request of a client, with all its attempts. It took effect at one moment of [Start, End]. If an attempt lost its answer
// and a later one was refused, it is unknown whether the operation took effect.
type operation struct {
	Number   int
	Tenant   string
	Workflow string
	Key      string
	Kind     string // put, patch, pause, resume, delete, trigger, bulk, sync
	Body     string
	Start    time.Time
	End      time.Time
	Tries    int    // attempts; all but the last have no answer
	Outcome  string // ok, refused, maybe
	Status   int
	Schedule string // its id, if the answer has one
	Version  int64
	Tick     string // of a trigger

	after *definition // the schedule after it; nil: deleted
	pause bool        // paused since
	slow  bool        // it applies only some time after its answer
}

// inForceWithin bounds the time from the answer to an edit of a calendar until the edit applies, faults included.
const inForceWithin = 30 * time.Second

// settled returns the latest moment at which the operation began to apply.
func (o *operation) settled() time.Time {
	if o.slow {
		return o.End.Add(inForceWithin)
	}
	return o.End
}

// The outcomes of an operation.
const (
	okay    = "ok"
	refused = "refused"
	maybe   = "maybe"
)

// edit is a change of a tenant's calendar. It began to apply at one moment of [began, applied].
type edit struct {
	holiday string
	began   time.Time
	applied time.Time // zero: unknown
}

// history is all operations of the clients, for each key in the order of their starts, and all edits of each tenant's calendar.
type history struct {
	mu    sync.Mutex
	ops   []*operation
	edits map[string][]*edit
}

// edit notes that an edit of a tenant's calendar begins. The caller calls applied with the time of its answer.
func (h *history) edit(tenant, holiday string, began time.Time) (applied func(answered time.Time)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.edits == nil {
		h.edits = map[string][]*edit{}
	}
	e := &edit{holiday: holiday, began: began}
	h.edits[tenant] = append(h.edits[tenant], e)
	return func(answered time.Time) {
		h.mu.Lock()
		defer h.mu.Unlock()
		e.applied = answered.Add(inForceWithin)
	}
}

// holidays returns the days that a tenant's calendar may have had at a moment from first to last.
func (h *history) holidays(tenant string, first, last time.Time) (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	edits := h.edits[tenant]
	for i, e := range edits {
		over := i+1 < len(edits) && !edits[i+1].applied.IsZero() && edits[i+1].applied.Before(first)
		if e.began.Before(last) && !over {
			all = append(all, e.holiday)
		}
	}
	return all
}

func (h *history) add(o *operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Number = len(h.ops) + 1
	h.ops = append(h.ops, o)
}

// byKey groups the operations by key.
func (h *history) byKey() map[name][]*operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := map[name][]*operation{}
	for _, o := range h.ops {
		n := name{o.Tenant, o.Workflow, o.Key}
		parts[n] = append(parts[n], o)
	}
	return parts
}

// name is the name by which a client knows a schedule.
type name struct{ tenant, workflow, key string }

// receipt is one delivery of a tick to an endpoint or a worker.
type receipt struct {
	Tenant  string    // of the endpoint or worker
	At      time.Time // when it was completely read
	Done    time.Time // when it was answered
	Where   string    // sink, or a worker's name
	Outcome string    // taken: processed and answered; refused; lost: processed, but the answer was cut; stolen: not processed
	Signed  bool
	ID      string // webhook-id
	tick
}

// The outcomes of a receipt.
const (
	taken     = "taken"
	turnedOff = "refused"
	cutOff    = "lost"
	letLie    = "stolen"
)

// ledger is the receipts of all endpoints and workers.
type ledger struct {
	acting sync.RWMutex // read-locked from receiving a tick until it is noted; locked by the checker
	mu     sync.Mutex
	list   []*receipt
	bad    []string // complaints about malformed ticks
}

func (l *ledger) add(r *receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, r)
}

func (l *ledger) complain(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bad = append(l.bad, what)
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// disturbance is a fault with its start and end.
type disturbance struct {
	Kind string    `json:"kind"`
	On   string    `json:"on,omitempty"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// troubles are all faults of a run.
type troubles struct {
	mu   sync.Mutex
	list []disturbance
}

func (t *troubles) add(d disturbance) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = append(t.list, d)
}

// near reports whether a fault happened at most within before or after a span of time.
func (t *troubles) near(from, to time.Time, within time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.list {
		if d.From.Add(-within).Before(to) && d.To.Add(within).After(from) {
			return true
		}
	}
	return false
}

func (t *troubles) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := map[string]int{}
	for _, d := range t.list {
		n[d.Kind]++
	}
	return n
}
