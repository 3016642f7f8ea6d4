package web

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// Budget bounds the memory of concurrent requests. It counts the bytes of request bodies, and of rows that wait to be written to an
// answer. It does not count values made from these bytes, which take at most a few times as much.
type Budget struct {
	whole int64 // of the process
	share int64 // of one tenant
	turns *turns
	pages *pages

	mu       sync.Mutex
	held     int64
	byTenant map[int32]int64
}

// The budget of a process, and the part of it that one tenant may use.
const (
	DefaultBudget = 128 << 20
	SmallestShare = 16 << 20 // every allowed body and page fits
	tenantPart    = 4
)

// NewBudget returns a budget of whole bytes, at least SmallestShare. A tenant may hold a quarter of it.
func NewBudget(whole int64) *Budget {
	whole = max(whole, SmallestShare)
	return &Budget{whole: whole, share: max(whole/tenantPart, SmallestShare), turns: newTurns(), pages: newPages(), byTenant: map[int32]int64{}}
}

// Limit returns middleware that charges each request's bytes to its tenant. A request whose bytes do not fit gets 429 if its tenant
// holds too much, and 503 if the process does. A request without a tenant is not charged, because its route has a small body limit.
func (b *Budget) Limit(tenant func(echo.Context) (int32, bool)) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			id, known := tenant(c)
			if !known {
				return next(c)
			}
			b.turns.saw(id, time.Now())
			a := &account{budget: b, tenant: id}
			defer a.close()
			r := c.Request()
			c.SetRequest(r.WithContext(context.WithValue(r.Context(), accountKey, a)))
			return next(c)
		}
	}
}

// account counts the bytes of one request. One goroutine uses it at a time. A nil account has no limit.
type account struct {
	budget   *Budget
	tenant   int32
	used     int64
	reserved int64 // in the budget: at least used
}

// reserveStep is the number of bytes that an account reserves together, so that a small request locks the budget once.
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

// reuse subtracts n bytes from the used ones. They stay reserved for the next bytes of the request.
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
		f := fault.New(http.StatusServiceUnavailable, "overloaded", "the requests of all tenants hold too many bytes; try again")
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
	rowBytes = 1 << 10 // the memory of a row, without its long texts
)

// ErrFull is the error of a Hold that has reached its limit.
var ErrFull = errors.New("the limit of held bytes is reached")

// NoRoom reports whether err means that an answer, a tenant or the process has reached its limit of bytes.
func NoRoom(err error) bool { return errors.Is(err, ErrFull) }

// refusal is the fault of a request that exceeds the budget. errors.Is finds ErrFull in it.
type refusal struct{ answer *fault.Error }

func (r refusal) Error() string        { return r.answer.Error() }
func (r refusal) Unwrap() error        { return r.answer }
func (r refusal) Is(target error) bool { return target == ErrFull }

// Hold counts the bytes of one answer while the handler builds it. It charges the request's account.
type Hold struct {
	account *account
	most    int
	held    int
}

// NewHold returns a Hold of at most most bytes for the request in ctx.
func NewHold(ctx context.Context, most int) *Hold {
	return &Hold{account: accountOf(ctx), most: most}
}

// Take adds one row with that many bytes in its long texts. It returns ErrFull if the answer becomes too large, and a fault if the
// tenant or the process holds too much. A nil Hold has no limit.
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

// Room returns a fault if the request in ctx cannot hold that many more bytes now. A caller checks it before an expensive read.
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

// Drop gives all bytes of the Hold back to the request's account.
func (h *Hold) Drop() {
	h.account.reuse(int64(h.held))
	h.held = 0
}

// Done gives the bytes of rows from Collect back to the request's account, and returns their number.
func Done[T any](ctx context.Context, found []T, size func(T) int) (held int) {
	for _, one := range found {
		held += Takes(size(one))
	}
	accountOf(ctx).reuse(int64(held))
	return held
}

// Takes returns the charge of a row with that many bytes in its long texts.
func Takes(bytes int) int { return bytes + rowBytes }
