package tenants

import (
	"context"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/carillonhq/carillon/internal/fault"
)

// What callers whose token is not verified may ask of the database: so much from one address, and so much together that
// at least as many connections are left for the look-ups of known tenants.
const (
	strangersAtATime = 2               // look-ups
	strangersInLine  = 64              // others that wait for them
	strangersWait    = 1 * time.Second // at most
	addressesKept    = 10_000
)

// addressRate is how many look-ups of a kind one address may cause.
type addressRate struct {
	perSec, burst int
}

var (
	exchangeRate = addressRate{50, 200}    // API keys
	nameRate     = addressRate{500, 1_000} // names of tenants, which tokens of tenants' own issuers say
)

// strangers limits the look-ups that are made before a caller is known. It is safe for concurrent use.
type strangers struct {
	now   func() time.Time
	slots chan struct{}
	line  chan struct{} // those that look or wait

	mu     sync.Mutex
	fullAt *lru.Cache[addressUse, time.Time] // when a bucket is full again (the generic cell rate algorithm)
}

type addressUse struct {
	network netip.Prefix
	rate    addressRate
}

func newStrangers() *strangers {
	kept, err := lru.New[addressUse, time.Time](addressesKept)
	if err != nil {
		panic(err) // its size is no more than zero
	}
	return &strangers{
		now: time.Now, fullAt: kept,
		slots: make(chan struct{}, strangersAtATime), line: make(chan struct{}, strangersAtATime+strangersInLine),
	}
}

type addressKey struct{}

// withAddress returns a context of a request from an address, which may be empty.
func withAddress(ctx context.Context, address string) context.Context {
	return context.WithValue(ctx, addressKey{}, address)
}

// look runs a look-up for a caller that is not known. It returns 429 where the address of ctx has caused too many, and 503
// where too many run or wait.
func (s *strangers) look(ctx context.Context, rate addressRate, look func() error) error {
	if wait := s.take(ctx, rate); wait > 0 {
		f := fault.TooMany("too many requests without a known token come from this address")
		f.RetryAfter = max(wait, time.Second)
		return f
	}
	select {
	case s.line <- struct{}{}:
		defer func() { <-s.line }()
	default:
		return overloaded()
	}
	timer := time.NewTimer(strangersWait)
	defer timer.Stop()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
		return look()
	case <-timer.C:
		return overloaded()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take spends one look-up of an address, or says how long to wait for it.
func (s *strangers) take(ctx context.Context, rate addressRate) time.Duration {
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

// networkOf returns the network that one client is taken to have: an IPv4 address, or the /64 of an IPv6 address.
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
	p, _ := a.WithZone("").Prefix(bits) // the bits fit
	return p
}
