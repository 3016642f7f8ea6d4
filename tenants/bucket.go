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

// Buckets hold tenants to their rates over any number of processes. A bucket is a row that says when it is full again
// (the generic cell rate algorithm); a process takes tokens out of it in chunks and spends them from memory, so that a
// request costs no statement and the processes together admit at most a chunk each too much. Each is safe for
// concurrent use.
type Buckets struct {
	db   postgres.DB
	now  func() time.Time
	mu   sync.Mutex
	kept *lru.Cache[bucketName, *bucket]
}

type bucketName struct {
	tenant  ID
	quota   string
	leaving bool // what is taken by who leaves a part to others
}

// Rate is how fast a bucket fills, how much it holds, and how much of that whoever takes of it leaves to others.
type Rate struct {
	Quota  string // its name
	PerSec int
	Burst  int
	Leave  int
}

// leaving returns the rate for a caller that leaves half of what the bucket holds to others, if it must. What flows into the
// bucket beyond that half is all there for it.
func (r Rate) leaving(must bool) Rate {
	if must {
		r.Leave = r.Burst / 2
	}
	return r
}

// NewBuckets returns Buckets whose rows lie in db.
func NewBuckets(db postgres.DB) *Buckets {
	kept, err := lru.New[bucketName, *bucket](100_000)
	if err != nil {
		panic(err) // its size is no more than zero
	}
	return &Buckets{db: db, now: time.Now, kept: kept}
}

// chunkOf is how many tokens a process takes at once: a tenth of a second's, so that they are spent before they are old.
func (r Rate) chunkOf(need int) int { return max(need, min(r.PerSec/10, r.Burst), 1) }

// bucket is what this process has of one.
type bucket struct {
	mu     sync.Mutex
	tokens int       // taken, and not spent
	level  int       // what the row held when it was last looked at
	closed time.Time // until then the row is known to hold less than what is needed
}

func (b *Buckets) of(tenant ID, r Rate) *bucket {
	name := bucketName{tenant, r.Quota, r.Leave > 0}
	b.mu.Lock()
	defer b.mu.Unlock()
	one, ok := b.kept.Get(name)
	if !ok {
		one = &bucket{}
		b.kept.Add(name, one)
	}
	return one
}

// Take spends n tokens of a tenant's rate, all or none. Without enough it says how long to wait until there may be;
// left is about how many more could be spent now. More than the bucket holds can never be taken.
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

// Wait spends n tokens, and waits for them where there are not enough. More than the bucket holds is taken in parts.
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

// draw takes n tokens out of the row, or says how long until it holds as many.
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
		return 0, 0, fmt.Errorf("take of %s: %w", r.Quota, err)
	}
	err = b.db.QueryRow(ctx, `
		SELECT extract(epoch FROM full_at - `+postgres.Now+`)::float8
		FROM bucket
		WHERE tenant_id = $1 AND quota = $2`, tenant, r.Quota).Scan(&ahead)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, 0, fmt.Errorf("read %s: %w", r.Quota, err)
	}
	seconds := math.Min(max(ahead+cost-window, 0.001), window+cost) // a quota that was lowered leaves no debt of the old one's size
	return 0, time.Duration(seconds * float64(time.Second)), nil
}
