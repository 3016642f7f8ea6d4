package push

import (
	"slices"
	"sync"

	"github.com/carillonhq/carillon/tenants"
)

// requestLimiter limits the requests of this process in flight to all endpoints, and the bytes that they hold:
//   - A tenant has at most half of the requests and half of the bytes.
//   - An eighth of both stays free for tenants without a request in flight.
//   - Free room goes to the waiting tenant with the fewest requests.
//
// The requests of one tenant wait in the order in which they came.
type requestLimiter struct {
	requests, bytes int // at most

	mu      sync.Mutex
	taken   int
	held    int // bytes
	tenants map[tenants.ID]*tenantShare
	queue   []*tenantShare // tenants that wait
	closed  bool
}

// tenantShare is the share of one tenant.
type tenantShare struct {
	tenant          tenants.ID
	requests, bytes int
	waiting         []*roomWaiter // oldest first
}

// roomWaiter is a request that waits for room.
type roomWaiter struct {
	bytes int
	done  chan bool // gets one value: whether the request may begin
}

const (
	mostRequests    = 1_000
	leastPushBytes  = 16 << 20
	deliveryHolds   = 1 << 10 // beside its payload
	payloadIsHeldIn = 2       // the delivery and the request's body
)

func newRequestLimiter(requests, bytes int) *requestLimiter {
	return &requestLimiter{requests: requests, bytes: max(bytes, leastPushBytes), tenants: map[tenants.ID]*tenantShare{}}
}

// weigh returns how many bytes a request of a batch holds, including the longest answer that is read.
func weigh(batch []*Delivery) int {
	n := answerRead
	for _, one := range batch {
		n += payloadIsHeldIn*one.bytes() + deliveryHolds
	}
	return n
}

func (d *Delivery) bytes() int { return TextLength(d.Content.Payload) }

// TextLength returns the number of bytes of a text; 0 for nil.
func TextLength(text *string) int {
	if text == nil {
		return 0
	}
	return len(*text)
}

// charge returns how many bytes a request counts as: at most a tenant's part, so that a larger request can be made.
func (f *requestLimiter) charge(bytes int) int { return min(bytes, f.bytes/2) }

// enter waits until a tenant may make a request that holds so many bytes. It returns false once the process sends nothing more.
func (f *requestLimiter) enter(tenant tenants.ID, bytes int) bool {
	bytes = f.charge(bytes)
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return false
	}
	one := f.tenants[tenant]
	if one == nil {
		one = &tenantShare{tenant: tenant}
		f.tenants[tenant] = one
	}
	if len(f.queue) == 0 && f.within(one, bytes) && f.fits(one, bytes) {
		f.begin(one, bytes)
		f.mu.Unlock()
		return true
	}
	b := &roomWaiter{bytes, make(chan bool, 1)}
	if one.waiting = append(one.waiting, b); len(one.waiting) == 1 {
		f.queue = append(f.queue, one)
	}
	f.serve()
	f.mu.Unlock()
	return <-b.done
}

// leave ends a request for which enter returned true.
func (f *requestLimiter) leave(tenant tenants.ID, bytes int) {
	bytes = f.charge(bytes)
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.tenants[tenant]
	one.requests, one.bytes = one.requests-1, one.bytes-bytes
	f.taken, f.held = f.taken-1, f.held-bytes
	if one.requests == 0 && len(one.waiting) == 0 {
		delete(f.tenants, tenant)
	}
	f.serve()
}

// close makes enter return false from now on, also to those that wait.
func (f *requestLimiter) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, one := range f.queue {
		for _, b := range one.waiting {
			b.done <- false
		}
		one.waiting = nil
	}
	f.queue = nil
}

func (f *requestLimiter) begin(one *tenantShare, bytes int) {
	one.requests, one.bytes = one.requests+1, one.bytes+bytes
	f.taken, f.held = f.taken+1, f.held+bytes
}

// within reports whether a request fits into the tenant's part.
func (f *requestLimiter) within(one *tenantShare, bytes int) bool {
	return one.requests == 0 || one.requests < f.requests/2 && one.bytes+bytes <= f.bytes/2
}

// fits reports whether the process has room for a request of a tenant.
func (f *requestLimiter) fits(one *tenantShare, bytes int) bool {
	requests, most := f.requests, f.bytes
	if one.requests > 0 {
		requests, most = requests-requests/8, most-most/8
	}
	return f.taken < requests && f.held+bytes <= most
}

// serve lets waiting requests begin while there is room. If the next tenant's request has no room yet, no other one passes it: small
// requests would keep a large one waiting.
func (f *requestLimiter) serve() {
	for {
		var next *tenantShare
		for _, one := range f.queue {
			if (next == nil || one.requests < next.requests) && f.within(one, one.waiting[0].bytes) {
				next = one
			}
		}
		if next == nil || !f.fits(next, next.waiting[0].bytes) {
			return
		}
		f.begin(next, next.waiting[0].bytes)
		next.waiting[0].done <- true
		next.waiting = next.waiting[1:]
		at := slices.Index(f.queue, next)
		f.queue = slices.Delete(f.queue, at, at+1)
		if len(next.waiting) > 0 {
			f.queue = append(f.queue, next)
		}
	}
}
