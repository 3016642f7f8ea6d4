package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// Budget bounds the bytes that requests hold in memory at a time: bodies that are read whole, and rows that wait to be
// written as an answer. What is made of these bytes is not counted; it takes at most a few times as much.
type Budget struct {
	whole int64 // of the process
	share int64 // of one tenant
	turns *turns

	mu       sync.Mutex
	held     int64
	byTenant map[int32]int64
}

// The budget of a process, and the part of it that one tenant may use.
const (
	DefaultBudget = 128 << 20
	SmallestShare = 16 << 20 // so that every body and page that is allowed fits
	tenantPart    = 4
)

// NewBudget returns a budget of so many bytes. A tenant may hold a quarter of it.
func NewBudget(whole int64) *Budget {
	whole = max(whole, SmallestShare)
	return &Budget{whole: whole, share: max(whole/tenantPart, SmallestShare), turns: newTurns(), byTenant: map[int32]int64{}}
}

// Limit charges each request's bytes to its tenant. A request whose bytes do not fit is 429 if its tenant holds too much, and
// 503 if the process does. A request without a tenant is not charged: its route has a small limit of its own.
func (b *Budget) Limit(tenant func(echo.Context) (int32, bool)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			id, known := tenant(c)
			if !known {
				return next(c)
			}
			a := &account{budget: b, tenant: id}
			defer a.close()
			r := c.Request()
			c.SetRequest(r.WithContext(context.WithValue(r.Context(), accountKey, a)))
			return next(c)
		}
	}
}

// account is what one request holds. It is used by one goroutine at a time. A nil account holds any number of bytes.
type account struct {
	budget   *Budget
	tenant   int32
	used     int64
	reserved int64 // in the budget: at least what is used
}

// reserveStep is how much is reserved at once, so that a small request locks the budget once.
const reserveStep = 16 << 10

func accountOf(ctx context.Context) *account {
	a, _ := ctx.Value(accountKey).(*account)
	return a
}

// take charges n more bytes.
func (a *account) take(n int64) error {
	if a == nil {
		return nil
	}
	if lacking := a.used + n - a.reserved; lacking > 0 {
		lacking = (lacking + reserveStep - 1) / reserveStep * reserveStep
		if err := a.budget.reserve(a.tenant, lacking); err != nil {
			return err
		}
		a.reserved += lacking
	}
	a.used += n
	return nil
}

// reuse says that n bytes are not held any more. They stay reserved for what the request holds next.
func (a *account) reuse(n int64) {
	if a != nil {
		a.used -= n
	}
}

func (a *account) close() {
	if a.reserved > 0 {
		a.budget.release(a.tenant, a.reserved)
	}
}

func (b *Budget) reserve(tenant int32, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if has := b.byTenant[tenant]; has+n > b.share {
		f := fault.New(http.StatusTooManyRequests, "rate_limited", "the requests of a tenant hold at most %d bytes at a time in one process", b.share)
		f.RetryAfter = time.Second
		f.Extra = map[string]any{"quota": "bytes_in_flight", "limit": b.share, "used": has}
		return refusal{f}
	}
	if b.held+n > b.whole {
		f := fault.New(http.StatusServiceUnavailable, "overloaded", "the service holds as many bytes of requests as it can just now; try again")
		f.RetryAfter = 2 * time.Second
		return refusal{f}
	}
	b.held += n
	b.byTenant[tenant] += n
	return nil
}

func (b *Budget) release(tenant int32, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.byTenant[tenant] -= n; b.byTenant[tenant] <= 0 {
		delete(b.byTenant, tenant)
	}
}

// A page of a list ends at MostPage bytes, however many items were asked for.
const (
	MostPage = 8 << 20
	rowTakes = 1 << 10 // in memory, besides its long texts
)

// ErrFull says that a Hold has as many bytes as it may.
var ErrFull = errors.New("as many bytes are held as may be")

// NoRoom reports whether an error says that nothing more may be held: by an answer, a tenant or the process.
func NoRoom(err error) bool { return errors.Is(err, ErrFull) }

// refusal is the answer to a request that may hold no more.
type refusal struct{ answer *fault.Error }

func (r refusal) Error() string        { return r.answer.Error() }
func (r refusal) Unwrap() error        { return r.answer }
func (r refusal) Is(target error) bool { return target == ErrFull }

// Hold is what one answer holds while it is made. It charges a request's account.
type Hold struct {
	account *account
	most    int
	held    int
}

// NewHold returns a Hold of at most so many bytes, for the request of a context.
func NewHold(ctx context.Context, most int) *Hold {
	return &Hold{account: accountOf(ctx), most: most}
}

// Take holds one more row, with so many bytes in its long texts. It is ErrFull if the answer is too large with it, and a fault
// if the tenant or the process holds too much. A nil Hold takes any number of bytes.
func (h *Hold) Take(bytes int) error {
	if h == nil {
		return nil
	}
	n := Takes(bytes)
	if h.held+n > h.most {
		return ErrFull
	}
	if err := h.account.take(int64(n)); err != nil {
		return err
	}
	h.held += n
	return nil
}

// Room is a fault if the request of a context may not hold so many bytes more just now. It spares the work of reading what could
// not be held.
func Room(ctx context.Context, bytes int64) error {
	a := accountOf(ctx)
	if a == nil {
		return nil
	}
	err := a.budget.reserve(a.tenant, bytes)
	if err == nil {
		a.budget.release(a.tenant, bytes)
	}
	return err
}

// Drop says that nothing is held any more.
func (h *Hold) Drop() {
	h.account.reuse(int64(h.held))
	h.held = 0
}

// Collect reads rows until they hold most bytes, or more than the request's tenant may hold now. Full says that it stopped
// before the last row. It fails if the budget has no room for the first row. Size tells the bytes of the long texts of a row.
func Collect[T any](ctx context.Context, rows pgx.Rows, most int, scan pgx.RowToFunc[T], size func(T) int) (found []T, full bool, err error) {
	defer rows.Close()
	hold := NewHold(ctx, most)
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, false, err
		}
		if err := hold.Take(size(one)); err != nil {
			if len(found) == 0 {
				return nil, false, err
			}
			return found, true, nil
		}
		found = append(found, one)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("read rows: %w", err)
	}
	return found, false, nil
}

// Done says that rows which Collect returned are not held any more. It returns how many bytes they held.
func Done[T any](ctx context.Context, found []T, size func(T) int) (held int) {
	for _, one := range found {
		held += Takes(size(one))
	}
	accountOf(ctx).reuse(int64(held))
	return held
}

// Takes is what a row is charged that has so many bytes in its long texts.
func Takes(bytes int) int { return bytes + rowTakes }
