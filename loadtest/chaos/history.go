package chaos

import (
	"sync"
	"time"
)

// operation is one thing that a client asked for, with all its attempts. What it did, it did at one moment of [Start,
// End]. One that was refused after an attempt whose answer was lost may have done it, or not.
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
	Schedule string // its id, where the answer tells
	Version  int64
	Tick     string // of a trigger

	after *definition // what it made of the schedule; nil: it is gone
	pause bool        // paused since
	slow  bool        // it is in force a while after its answer
}

// inForceWithin is how long after its answer an edit of a calendar may take to be in force, faults included.
const inForceWithin = 30 * time.Second

// settled is when the operation was in force at the latest.
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

// history is all that clients asked for, in the order in which it began for each key.
type history struct {
	mu  sync.Mutex
	ops []*operation
}

func (h *history) add(o *operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.Number = len(h.ops) + 1
	h.ops = append(h.ops, o)
}

// byKey parts the operations by what they are about.
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

// name is what a client knows a schedule by.
type name struct{ tenant, workflow, key string }

// receipt is one time that a tick came to an endpoint or a worker.
type receipt struct {
	Tenant  string    // whose endpoint or worker it was
	At      time.Time // when all of it had come
	Done    time.Time // when it was answered
	Where   string    // sink, or a worker's name
	Outcome string    // taken: we acted on it and said so; refused, lost: we acted and the answer was cut; stolen: let lie
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

// ledger is what came to all endpoints and workers.
type ledger struct {
	acting sync.RWMutex // held by who takes a tick, until it is entered; and, alone, by who judges
	mu     sync.Mutex
	list   []*receipt
	bad    []string // what no tick should be like
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

// disturbance is a fault and how long it lasted.
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

// near tells whether a fault lay within a while of a span of time.
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
