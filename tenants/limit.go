package tenants

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
)

// Limits hold each tenant's requests to its quotas: how many a second, over all processes, and how many at a time, in
// this one. What workers ask (leases, heartbeats, finishes) is counted apart, so that neither starves the other.
type Limits struct {
	Buckets   *Buckets
	Directory *Directory

	callers *callers

	mu     sync.Mutex
	flying map[bucketName]int // requests at a time
	flown  map[flight]int     // those of them of one caller
}

// flight is a caller's requests of a quota.
type flight struct {
	bucketName
	caller string
}

// NewLimits returns the limits of one process.
func NewLimits(b *Buckets, d *Directory) *Limits {
	return &Limits{Buckets: b, Directory: d, callers: newCallers(), flying: map[bucketName]int{}, flown: map[flight]int{}}
}

// ofPlatform is what the platform's operator may ask, who is no tenant.
var ofPlatform = Quotas{RequestsPerSecond: 1_000, ConcurrentRequests: 100, ConcurrentPolls: 100, ConcurrentBulk: 10}

// kind is what a request counts as.
type kind struct {
	rate  func(Quotas) Rate
	atOne string // the quota of how many at a time
	most  func(Quotas) int
}

var (
	anyRequest = kind{
		func(q Quotas) Rate {
			return Rate{Quota: "requests_per_second", PerSec: q.RequestsPerSecond, Burst: 2 * q.RequestsPerSecond}
		},
		"concurrent_requests", func(q Quotas) int { return q.ConcurrentRequests },
	}
	bulkRequest = kind{
		anyRequest.rate,
		"concurrent_bulk", func(q Quotas) int { return q.ConcurrentBulk },
	}
	workerRequest = kind{
		func(q Quotas) Rate {
			return Rate{Quota: "concurrent_polls", PerSec: q.ConcurrentPolls, Burst: 2 * q.ConcurrentPolls}
		},
		"concurrent_polls", func(q Quotas) int { return q.ConcurrentPolls },
	}
)

// Upserts are how fast a tenant may store schedules; a body of many lines is read no faster.
func Upserts(q Quotas) Rate {
	return Rate{Quota: "upserts_per_second", PerSec: q.UpsertsPerSecond, Burst: 20 * q.UpsertsPerSecond}
}

// spendOne takes one of the requests_per_second of a tenant, for a request without a token.
func (l *Limits) spendOne(ctx context.Context, tenant ID) error {
	q, err := l.Directory.Quotas(ctx, tenant)
	if err != nil {
		return err
	}
	r := anyRequest.rate(q)
	_, wait, err := l.Buckets.Take(postgres.ForTenant(ctx, int32(tenant)), tenant, r, 1)
	if err == nil && wait > 0 {
		err = tooFast(r, wait)
	}
	return err
}

func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

func tooFast(r Rate, wait time.Duration) error {
	f := fault.TooMany("%s allows %d", r.Quota, r.PerSec)
	f.RetryAfter = max(wait, time.Second)
	f.Extra = map[string]any{"quota": r.Quota, "limit": r.PerSec, "used": r.PerSec}
	return f
}

func tooMany(quota string, most int) error {
	f := fault.TooMany("%s allows %s at a time", quota, strconv.Itoa(most))
	f.RetryAfter = time.Second
	f.Extra = map[string]any{"quota": quota, "limit": most, "used": most}
	return f
}

// AtOnce meters a quota of how many requests are worked on at a time: those of this process, as each counts its own.
func (l *Limits) AtOnce(quota string) Meter {
	return func(_ context.Context, tenant ID) (int, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.flying[bucketName{tenant: tenant, quota: quota}], nil
	}
}

// enter lets a request be worked on. A caller that has half of what may be worked on at a time leaves an eighth to the others,
// if there are some.
func (l *Limits) enter(f flight, most int, others bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if others && most > 1 && 2*l.flown[f] >= most {
		most -= max(most/leftPart, 1)
	}
	if l.flying[f.bucketName] >= most {
		return false
	}
	l.flying[f.bucketName]++
	l.flown[f]++
	return true
}

func (l *Limits) leave(f flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flying[f.bucketName]--; l.flying[f.bucketName] == 0 {
		delete(l.flying, f.bucketName)
	}
	if l.flown[f]--; l.flown[f] == 0 {
		delete(l.flown, f)
	}
}
