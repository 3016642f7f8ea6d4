package tenants

import (
	"context"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/carillonhq/carillon/internal/fault"
)

// The limits of look-ups for unverified tokens. There is a limit for each address. The limit for all together leaves at least as many
// connections to the look-ups of known tenants.
const (
	lookupsRunning = 2
	lookupsWaiting = 64
	lookupWait     = 1 * time.Second
	maxAddresses   = 10_000 // in memory
)

// addressRate is the rate of one kind of look-ups for one address.
type addressRate struct {
	perSec, burst int
}

var (
	exchangeRate = addressRate{50, 200}    // API keys
	nameRate     = addressRate{500, 1_000} // names of tenants in tokens of their own issuers
)

// lookupLimiter limits the look-ups for callers that are not verified yet. It is safe for concurrent use.
type lookupLimiter struct {
	now     func() time.Time
	running chan struct{}
	queue   chan struct{} // look-ups that run or wait

	mu     sync.Mutex
	fullAt *lru.Cache[addressUse, time.Time] // when a token bucket is full again (the generic cell rate algorithm)
}

type addressUse struct {
	network netip.Prefix
	rate    addressRate
}

func newLookupLimiter() *lookupLimiter {
	fullAt, err := lru.New[addressUse, time.Time](maxAddresses)
	if err != nil {
		panic(err) // only a size of zero or less is refused
	}
	return &lookupLimiter{
		now: time.Now, fullAt: fullAt,
		running: make(chan struct{}, lookupsRunning), queue: make(chan struct{}, lookupsRunning+lookupsWaiting),
	}
}

type addressKey struct{}

// withAddress returns a context with the address of the request's client, which may be empty.
func withAddress(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, addressKey{}, address)
}

// run runs a look-up for an unverified caller. It returns a fault 429 if the client's address has caused too many, and 503 if too many
// run or wait.
func (s *lookupLimiter) run(ctx context.Context, rate addressRate, look func() error) error {
	if wait := s.take(ctx, rate); wait > 0 {
		f := fault.TooMany("too many requests without a valid token come from this address")
		f.RetryAfter = max(wait, time.Second)
		return f
	}
	select {
	case s.queue <- struct{}{}:
		defer func() { <-s.queue }()
	default:
		return overloaded()
	}
	timer := time.NewTimer(lookupWait)
	defer timer.Stop()
	select {
	case s.running <- struct{}{}:
		defer func() { <-s.running }()
		return look()
	case <-timer.C:
		return overloaded()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take spends one look-up of an address, or returns the time to wait for it.
func (s *lookupLimiter) take(ctx context.Context, rate addressRate) time.Duration {
	address, _ := ctx.Value(addressKey{}).(string)
	use, now := addressUse{networkOf(address), rate}, s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	full, _ := s.fullAt.Get(use)
	if full.Before(now) {
		full = now
	}
	full = full.Add(time.Second / time.Duration(rate.perSec))
	if wait := full.Sub(now) - time.Duration(rate.burst)*time.Second/time.Duration(rate.perSec); wait > 0 {
		return wait
	}
	s.fullAt.Add(use, full)
	return 0
}

// networkOf returns the network that counts as one client: an IPv4 address, or the /64 of an IPv6 address.
func networkOf(address string) netip.Prefix {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}
	}
	a = a.Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.WithZone("").Prefix(bits) // bits is always valid
	return p
}
