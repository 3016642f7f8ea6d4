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

// Limits enforce the request quotas of each tenant: requests a second over all processes, and concurrent requests in this process.
// Requests of workers (lease, heartbeat, finish) have their own quotas, so that neither kind starves the other.
type Limits struct {
	Buckets   *Buckets
	Directory *Directory

	callers *callers

	mu         sync.Mutex
	inFlight   map[bucketName]int // by quota of a tenant
	inFlightOf map[callerQuota]int
}

// callerQuota is a quota as one caller of the tenant uses it.
type callerQuota struct {
	bucketName
	caller string
}

// NewLimits returns the limits of one process.
func NewLimits(b *Buckets, d *Directory) *Limits {
	return &Limits{Buckets: b, Directory: d, callers: newCallers(), inFlight: map[bucketName]int{}, inFlightOf: map[callerQuota]int{}}
}

// platformQuotas are the quotas of the platform's operator, which is not a tenant.
var platformQuotas = Quotas{RequestsPerSecond: 1_000, ConcurrentRequests: 100, ConcurrentPolls: 100, ConcurrentBulk: 10}

// kind is the kind of a request. It determines the quotas that the request uses.
type kind struct {
	rate       func(Quotas) Rate
	concurrent string // the name of the quota of concurrent requests
	most       func(Quotas) int
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

// Upserts returns the rate at which a tenant may store schedules. A bulk body is read at this rate.
func Upserts(q Quotas) Rate {
	return Rate{Quota: "upserts_per_second", PerSec: q.UpsertsPerSecond, Burst: 20 * q.UpsertsPerSecond}
}

// spendOne takes one token of the tenant's requests_per_second, for a request without a token of its own.
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
	f := fault.TooMany("%s allows %s concurrent requests", quota, strconv.Itoa(most))
	f.RetryAfter = time.Second
	f.Extra = map[string]any{"quota": quota, "limit": most, "used": most}
	return f
}

// Concurrent returns the Meter of a quota of concurrent requests. It counts the requests of this process, as the quota does.
func (l *Limits) Concurrent(quota string) Meter {
	return func(_ context.Context, tenant ID) (int, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.inFlight[bucketName{tenant: tenant, quota: quota}], nil
	}
}

// enter reports whether a request may begin, and counts it. A caller with half of the concurrent requests must leave an eighth of the
// quota to the other callers, if there are any.
func (l *Limits) enter(q callerQuota, most int, others bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if others && most > 1 && 2*l.inFlightOf[q] >= most {
		most -= max(most/leftPart, 1)
	}
	if l.inFlight[q.bucketName] >= most {
		return false
	}
	l.inFlight[q.bucketName]++
	l.inFlightOf[q]++
	return true
}

func (l *Limits) leave(q callerQuota) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[q.bucketName]--; l.inFlight[q.bucketName] == 0 {
		delete(l.inFlight, q.bucketName)
	}
	if l.inFlightOf[q]--; l.inFlightOf[q] == 0 {
		delete(l.inFlightOf, q)
	}
}
