package tenants

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
)

// Buckets are rate limiters (token buckets) of tenants, shared by all processes. A bucket is a row with the time at which it is full
// again (the generic cell rate algorithm). A process takes tokens from the row in chunks and spends them from memory, so that most
// requests need no statement. Each process can admit at most one chunk too many. Buckets are safe for concurrent use.
type Buckets struct {
	db      postgres.DB
	now     func() time.Time
	mu      sync.Mutex
	buckets *lru.Cache[bucketName, *bucket]
}

type bucketName struct {
	tenant  ID
	quota   string
	leaving bool // tokens of a caller that must leave a part to other callers
}

// Rate is the rate of a bucket.
type Rate struct {
	Quota  string // the quota's name
	PerSec int    // tokens that flow in each second
	Burst  int    // the capacity
	Leave  int    // tokens of the capacity that a caller leaves to others
}

// leaving returns the rate of a caller that must leave half of the capacity to others; otherwise it returns r. The inflow above that
// half is available to the caller.
func (r Rate) leaving(must bool) Rate {
	if must {
		r.Leave = r.Burst / 2
	}
	return r
}

// NewBuckets returns Buckets with their rows in db.
func NewBuckets(db postgres.DB) *Buckets {
	buckets, err := lru.New[bucketName, *bucket](100_000)
	if err != nil {
		panic(err) // only a size of zero or less is refused
	}
	return &Buckets{db: db, now: time.Now, buckets: buckets}
}

// chunkOf returns how many tokens a process takes together: those of a tenth of a second, so that it spends them soon.
func (r Rate) chunkOf(need int) int { return max(need, min(r.PerSec/10, r.Burst), 1) }

// bucket is the part of a bucket in this process.
type bucket struct {
	mu     sync.Mutex
	tokens int       // taken from the row and not spent
	level  int       // the tokens in the row at the last read
	closed time.Time // until then the row has too few tokens
}

func (b *Buckets) of(tenant ID, r Rate) *bucket {
	name := bucketName{tenant, r.Quota, r.Leave > 0}
	b.mu.Lock()
	defer b.mu.Unlock()
	one, ok := b.buckets.Get(name)
	if !ok {
		one = &bucket{}
		b.buckets.Add(name, one)
	}
	return one
}

// Take spends n tokens of a tenant's bucket, or none. If there are too few, wait is the time until there may be enough. left is about
// how many more tokens could be spent now. n must not exceed the capacity.
func (b *Buckets) Take(ctx context.Context, tenant ID, r Rate, n int) (left int, wait time.Duration, err error) {
	one := b.of(tenant, r)
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.tokens >= n {
		one.tokens -= n
		return one.tokens + one.level, 0, nil
	}
	if wait = one.closed.Sub(b.now()); wait > 0 {
		return one.tokens, wait, nil
	}
	chunk := r.chunkOf(n - one.tokens)
	level, wait, err := b.draw(ctx, tenant, r, chunk)
	if err != nil {
		return 0, 0, err
	}
	if wait > 0 {
		one.level, one.closed = 0, b.now().Add(wait)
		return one.tokens, wait, nil
	}
	one.tokens += chunk - n
	one.level = level
	return one.tokens + level, 0, nil
}

// Wait spends n tokens and waits until there are enough. It takes more than the capacity in parts.
func (b *Buckets) Wait(ctx context.Context, tenant ID, r Rate, n int) error {
	for n > 0 {
		part := min(n, max(r.Burst, 1))
		_, wait, err := b.Take(ctx, tenant, r, part)
		if err != nil {
			return err
		}
		if wait == 0 {
			n -= part
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
	return nil
}

// draw takes n tokens from the row, or returns the time until the row has them.
func (b *Buckets) draw(ctx context.Context, tenant ID, r Rate, n int) (level int, wait time.Duration, err error) {
	cost, window := float64(n)/float64(r.PerSec), float64(max(r.Burst-r.Leave, n))/float64(r.PerSec)
	ctx = postgres.Unwatched(ctx)
	var ahead float64 // seconds until the bucket is full
	err = b.db.QueryRow(ctx, `
		INSERT INTO bucket AS b (tenant_id, quota, full_at)
		VALUES ($1, $2, `+postgres.Now+` + make_interval(secs => $3))
		ON CONFLICT (tenant_id, quota) DO UPDATE
		SET full_at = GREATEST(b.full_at, `+postgres.Now+`) + make_interval(secs => $3)
		WHERE GREATEST(b.full_at, `+postgres.Now+`) + make_interval(secs => $3) <= `+postgres.Now+` + make_interval(secs => $4)
		RETURNING extract(epoch FROM full_at - `+postgres.Now+`)::float8`, tenant, r.Quota, cost, window).Scan(&ahead)
	if err == nil {
		return int((window - max(ahead, 0)) * float64(r.PerSec)), 0, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, fmt.Errorf("take tokens of %s: %w", r.Quota, err)
	}
	err = b.db.QueryRow(ctx, `
		SELECT extract(epoch FROM full_at - `+postgres.Now+`)::float8
		FROM bucket
		WHERE tenant_id = $1 AND quota = $2`, tenant, r.Quota).Scan(&ahead)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, fmt.Errorf("read the bucket of %s: %w", r.Quota, err)
	}
	seconds := math.Min(max(ahead+cost-window, 0.001), window+cost) // after a quota was lowered, the wait is not longer than the new bucket takes to fill
	return 0, time.Duration(seconds * float64(time.Second)), nil
}
