package sweep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// limiter is the rate limiter of tenants: ticks_per_second of each, by a generic cell rate algorithm over one row a tenant, which says up to
// when its tokens are spent. Processes take tokens in statements of their own, so that no sweep waits for another one. Tokens that were
// taken for one shard and not needed are spent on the next.
type limiter struct {
	pool *pgxpool.Pool

	mu   sync.Mutex
	held map[tenants.ID]tokens
	debt map[tenants.ID]int
	free map[tenants.ID]time.Time // when the next tick that a change hands out may go out
}

// tokens are what this process has of a tenant's, and when it was told.
type tokens struct {
	n       int
	stopped bool
	next    time.Duration
	at      time.Time
}

// grant is the answer to a request for tokens.
type grant struct {
	n       int
	stopped bool          // the tenant is halted or suspended
	next    time.Duration // how long until there are more
}

const (
	tokensHeld = 500 * time.Millisecond // a process loses tokens that it has held for longer
	burst      = 200 * time.Millisecond // a tenant without queued ticks saves at most the tokens of this time
	backlog    = time.Second            // a tenant with queued ticks saves at most the tokens of this time between two sweeps
	leastRest  = 100 * time.Millisecond // between two turns for which tokens are too few
	unlimited  = 1_000_000              // a rate of so many ticks a second or more is no limit
	mostDebt   = time.Minute            // a debt beyond the tokens of this time is forgiven
	mostRest   = 5 * time.Second        // until the next look at a tenant in debt, as its quota may be raised
)

func newLimiter(pool *pgxpool.Pool) *limiter {
	return &limiter{pool: pool, held: map[tenants.ID]tokens{}, debt: map[tenants.ID]int{}, free: map[tenants.ID]time.Time{}}
}

// charge charges a tenant for ticks that were handed out without tokens.
func (l *limiter) charge(tenant tenants.ID, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.debt[tenant] += n
}

// pace returns how long the next n ticks that a change hands out for a tenant must wait. This process hands out such ticks at the tenant's
// rate, and at most the tokens of backlog at once. A rate of 0 means that the rate is not known: then nothing waits.
func (l *limiter) pace(tenant tenants.ID, n, rate int, now time.Time) time.Duration {
	if rate <= 0 || rate >= unlimited {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	free := l.free[tenant]
	if least := now.Add(-backlog); free.Before(least) {
		free = least
	}
	if len(l.free) > mostTenants {
		clear(l.free)
	}
	l.free[tenant] = free.Add(time.Duration(n) * time.Second / time.Duration(rate))
	return max(0, free.Sub(now))
}

// refund returns tokens that were not needed.
func (l *limiter) refund(tenant tenants.ID, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.held[tenant]
	t.n += n
	l.held[tenant] = t
}

// take takes up to as many tokens as are wanted of each tenant; 0 only reads whether it is stopped. waits: ticks of these tenants are
// queued.
func (l *limiter) take(ctx context.Context, want map[tenants.ID]int, waits bool) (map[tenants.ID]grant, error) {
	grants := make(map[tenants.ID]grant, len(want))
	var ask []tenants.ID
	var wants, debts []int32
	now := time.Now()
	l.mu.Lock()
	for _, tenant := range slices.Sorted(maps.Keys(want)) {
		have, n := l.held[tenant], want[tenant]
		if now.Sub(have.at) >= tokensHeld {
			have.n = 0
		} else if have.n >= n || have.stopped || have.next > now.Sub(have.at) && !waits {
			g := grant{n: min(n, have.n), stopped: have.stopped, next: max(0, have.next-now.Sub(have.at))}
			have.n -= g.n
			l.held[tenant], grants[tenant] = have, g
			continue
		}
		ask, wants, debts = append(ask, tenant), append(wants, int32(n-have.n)), append(debts, int32(min(l.debt[tenant], math.MaxInt32)))
		grants[tenant] = grant{n: have.n}
		have.n = 0
		l.held[tenant] = have
		delete(l.debt, tenant)
	}
	l.mu.Unlock()
	if len(ask) == 0 {
		return grants, nil
	}
	got, err := l.draw(ctx, ask, wants, debts, waits)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		for i, tenant := range ask {
			l.debt[tenant] += int(debts[i])
		}
		return nil, err
	}
	if len(l.held) > mostTenants {
		clear(l.held)
	}
	for i, tenant := range ask {
		g := grants[tenant]
		drawn, there := got[tenant]
		drawn.stopped = drawn.stopped || !there // a tenant that is gone
		spend := min(int(wants[i]), drawn.n)
		g.n, g.stopped, g.next = g.n+spend, drawn.stopped, drawn.next
		drawn.n, drawn.at = drawn.n-spend, now
		grants[tenant], l.held[tenant] = g, drawn
	}
	return grants, nil
}

const mostTenants = 100_000 // tenants

// drawTokens settles what tenants owe and takes tokens out of their rows. What a tenant owes counts at its present rate: where
// the rate has changed, the time until the debt is paid changes with it. No arithmetic of one tenant's row fails the statement.
const drawTokens = `
		UPDATE allowance a
		SET spent_to = LEAST(o.now + make_interval(secs => $8),
				since + make_interval(secs => CASE WHEN o.rate >= $5 OR o.stopped THEN 0 ELSE (got + o.debt::float8) / o.rate END)),
			spent_rate = o.rate
		FROM (
			SELECT q.*, CASE
					WHEN q.stopped OR q.want = 0 THEN 0
					WHEN q.rate >= $5 THEN 1 << 30
					ELSE GREATEST(0, LEAST(GREATEST(q.want, q.rate / 20), floor(extract(epoch FROM q.now - q.since) * q.rate + 0.001) - q.debt))::int
				END AS got
			FROM (
				SELECT a.tenant_id, n.want, n.debt, t.stopped, t.rate, c.now,
					GREATEST(c.now - make_interval(secs => GREATEST($4::float8, 1.0 / t.rate)), LEAST(c.now + make_interval(secs => $8), CASE
						WHEN a.spent_to > c.now AND a.spent_rate <> t.rate THEN c.now + LEAST(a.spent_to - c.now, interval '1 year') * (a.spent_rate::float8 / t.rate)
						ELSE a.spent_to
					END)) AS since
				FROM unnest($1::int[], $2::int[], $3::int[]) AS n (tenant_id, want, debt)
				JOIN (
					SELECT t.id, ` + tenants.Stopped + ` AS stopped,
						GREATEST(1, LEAST($5, COALESCE((t.quotas->>'ticks_per_second')::numeric, $6)))::int AS rate
					FROM tenant t
				) t ON t.id = n.tenant_id
				JOIN allowance a ON a.tenant_id = n.tenant_id
				CROSS JOIN (SELECT ` + postgres.Now + ` AS now) c
			) q
		) o
		WHERE a.tenant_id = o.tenant_id
		RETURNING a.tenant_id, o.got, o.stopped,
			LEAST($9::float8, GREATEST(0, extract(epoch FROM a.spent_to - o.now) + GREATEST($7::float8, 1.0 / o.rate)))::float8`

// draw takes tokens out of the tenants' rows, in the order of the tenants. A little more than is wanted is taken where it
// is there, for the next shard. A tenant that is gone is missing from the answer.
func (l *limiter) draw(ctx context.Context, ask []tenants.ID, wants, debts []int32, waits bool) (map[tenants.ID]tokens, error) {
	reach := burst
	if waits {
		reach = backlog
	}
	var b pgx.Batch                                                                              // one implicit transaction
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true), ` + postgres.SetGenericPlans) // a crash gives back what was taken, no more
	b.Queue(`INSERT INTO allowance (tenant_id, spent_to) SELECT id, '-infinity' FROM tenant WHERE id = ANY ($1::int[]) ORDER BY id ON CONFLICT DO NOTHING`, ask)
	b.Queue(`SELECT FROM allowance WHERE tenant_id = ANY ($1::int[]) ORDER BY tenant_id FOR UPDATE`, ask)
	b.Queue(drawTokens, ask, wants, debts, reach.Seconds(), unlimited, tenants.Defaults().TicksPerSecond, leastRest.Seconds(), mostDebt.Seconds(), mostRest.Seconds())
	results := l.pool.SendBatch(ctx, &b)
	defer results.Close()
	for range 3 {
		if _, err := results.Exec(); err != nil {
			return nil, fmt.Errorf("take tokens: %w", err)
		}
	}
	rows, err := results.Query()
	if err != nil {
		return nil, fmt.Errorf("take tokens: %w", err)
	}
	got := make(map[tenants.ID]tokens, len(ask))
	var tenant tenants.ID
	var t tokens
	var next float64
	_, err = pgx.ForEachRow(rows, []any{&tenant, &t.n, &t.stopped, &next}, func() error {
		t.next = time.Duration(next * float64(time.Second))
		got[tenant] = t
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take tokens: %w", err)
	}
	return got, results.Close()
}

// flush writes down the debts of tenants for which no sweep has taken tokens since.
func (l *limiter) flush(ctx context.Context) error {
	l.mu.Lock()
	want := make(map[tenants.ID]int, len(l.debt))
	for tenant := range l.debt {
		want[tenant] = 0
		t := l.held[tenant]
		t.at = time.Time{} // the held tokens count as too old, so that take reads the row
		l.held[tenant] = t
	}
	l.mu.Unlock()
	_, err := l.take(ctx, want, true)
	return err
}

// SettleDebts writes down the debts of tenants and of workflows.
func (s *Sweeper) SettleDebts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return errors.Join(s.fair.limiter.flush(ctx), s.chunker.debts.Settle(ctx, s.pool))
}

// reset forgets the tokens of a tenant: the next pass reads its row again.
func (l *limiter) reset(tenant tenants.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, tenant)
}
