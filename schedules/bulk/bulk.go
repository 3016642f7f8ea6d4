package bulk

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

// Line is a line of a bulk upsert: the body of a Put, with whose schedule it is. A key left out is "global".
type Line struct {
	Workflow string  `json:"workflow"`
	Key      *string `json:"key,omitempty"`
	schedules.Params
}

// Duplicate is what became of a line if a later line of the same batch has the same workflow and key. Else a line ends as an item of
// package schedules does.
const Duplicate = "duplicate"

// Result is what became of one line; lines count from 1. Workflow and key are empty where the line does not tell them.
type Result struct {
	Line       int    `json:"line"`
	Result     string `json:"result"`
	Workflow   string `json:"workflow"`
	Key        string `json:"key"`
	ScheduleID string `json:"schedule_id,omitempty"`
	Error      *Fault `json:"error,omitempty"`

	resumed bool // a sync had paused it
}

// Fault is why a line is refused: the fault that a Put of it would return.
type Fault struct {
	Status int           `json:"status"`
	Code   string        `json:"code"`
	Detail string        `json:"detail"`
	Errors []fault.Field `json:"errors,omitempty"`
}

// Summary counts the lines by what became of them.
type Summary struct {
	Inserted   int `json:"inserted"`
	Updated    int `json:"updated"`
	Unchanged  int `json:"unchanged"`
	Duplicates int `json:"duplicates"`
	Errors     int `json:"errors"`
}

const (
	mostLines   = 1_000_000
	batchLines  = 1000    // at most that many lines are stored in one transaction
	batchBytes  = 4 << 20 // or as many as these bytes hold
	longestLine = 1 << 20
)

func (s *Summary) count(r Result) {
	switch r.Result {
	case schedules.Inserted:
		s.Inserted++
	case schedules.Updated:
		s.Updated++
	case schedules.Unchanged:
		s.Unchanged++
	case Duplicate:
		s.Duplicates++
	case schedules.Failed:
		s.Errors++
	}
}

// Config has the dependencies of Bulk. All members but Pace are required.
type Config struct {
	Pool      postgres.DB // it shows only the rows of the tenant that a context names
	Schedules *schedules.Schedules
	Subjects  *subjects.Subjects
	Forecasts *forecast.Forecasts
	IDs       ident.Codec
	Quotas    func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
	Log       *slog.Logger

	// Pace waits until a tenant may store n more schedules; it is called with the lines of a body as they are read. Nil: at once.
	Pace func(ctx context.Context, tenant tenants.ID, n int) error
}

// Bulk stores and lists many schedules in one call. It is safe for concurrent use.
type Bulk struct {
	pool      postgres.DB
	schedules *schedules.Schedules
	subjects  *subjects.Subjects
	forecasts *forecast.Forecasts
	ids       ident.Codec
	quotas    func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
	log       *slog.Logger
	pace      func(ctx context.Context, tenant tenants.ID, n int) error
}

// New returns Bulk over a pool whose database is migrated.
func New(c Config) *Bulk {
	return &Bulk{pool: c.Pool, schedules: c.Schedules, subjects: c.Subjects, forecasts: c.Forecasts, ids: c.IDs, quotas: c.Quotas, log: c.Log, pace: c.Pace}
}

// wait waits until the tenant may store the schedules of a batch.
func (s *Bulk) wait(ctx context.Context, tenant tenants.ID, b *batch) error {
	if s.pace == nil || b == nil || len(b.items) == 0 {
		return nil
	}
	return s.pace(ctx, tenant, len(b.items))
}

// Upsert stores each line of body as Put would. Once a batch of lines is committed, it calls answer with their results, in the order of
// the lines. A bad line does not affect the others. Of lines in one batch with the same workflow and key the last good one counts. An
// error ends the call; the batches answered by then stay. Memory does not grow with the body. Upsert closes body when it must stop
// reading: Close ends a Read that is under way.
func (s *Bulk) Upsert(ctx context.Context, tenant tenants.ID, by string, body io.ReadCloser, answer func([]Result) error) (sum Summary, err error) {
	sum, err = s.upsert(ctx, &writer{s: s, tenant: tenant, by: by}, body, answer)
	return sum, s.auditCall(ctx, caller{tenant, by}, "schedules/bulk", sum, sum.Inserted+sum.Updated, err)
}

// TryUpsert answers what Upsert would, and stores nothing.
func (s *Bulk) TryUpsert(ctx context.Context, tenant tenants.ID, by string, body io.ReadCloser, answer func([]Result) error) (Summary, error) {
	return s.upsert(ctx, &writer{s: s, tenant: tenant, by: by, dry: true}, body, answer)
}

// upsert reads batches from body. The writer w stores and answers them.
func (s *Bulk) upsert(ctx context.Context, w *writer, body io.ReadCloser, answer func([]Result) error) (sum Summary, err error) {
	group, ctx := errgroup.WithContext(ctx)
	batches := make(chan *batch)
	stop := closeAtEnd(ctx, body)
	group.Go(func() error {
		defer close(batches)
		defer stop()
		r := newReader(s, w.tenant, body)
		for {
			b, err := r.next(ctx)
			if paced := s.wait(ctx, w.tenant, b); paced != nil {
				return paced
			}
			if b != nil && len(b.results) > 0 {
				select {
				case batches <- b:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	group.Go(func() error {
		w.group, w.answered = group, func(results []Result) error {
			for _, r := range results {
				sum.count(r)
			}
			return answer(results)
		}
		return w.run(ctx, batches)
	})
	err = group.Wait()
	return sum, err
}

// storeBatch stores the good lines of a batch. If the last of several lines of one key turns out to be bad, the line before it counts.
func (s *Bulk) storeBatch(ctx context.Context, tenant tenants.ID, by string, b *batch, dry bool) error {
	if err := tenants.CheckAuthority(ctx); err != nil {
		return err
	}
	for items := b.items; len(items) > 0; {
		puts := make([]*schedules.Item, len(items))
		for i, it := range items {
			puts[i] = &it.Item
		}
		if err := s.schedules.PutAll(ctx, tenant, by, puts, dry); err != nil {
			return err
		}
		var again []*item
		for _, it := range items {
			result := &b.results[it.place]
			result.Result, result.resumed = it.Result, it.Resumed
			if it.Result != schedules.Failed {
				if it.ID != 0 { // 0: the schedule would be new, in a dry run
					result.ScheduleID = s.ids.Schedule(it.ID)
				}
				continue
			}
			result.Error = faultOf(it.Fault)
			if it.earlier != nil {
				again = append(again, it.earlier)
			}
		}
		items = again
	}
	return nil
}

func faultOf(f *fault.Error) *Fault {
	return &Fault{Status: f.Status, Code: f.Code, Detail: f.Detail, Errors: f.Fields}
}

// caller is a tenant and the client of the tenant that makes a call.
type caller struct {
	tenant tenants.ID
	by     string
}

const auditTimeout = 10 * time.Second

// auditCall records a call, such as schedules/bulk, that changed rows in many transactions: once, with its counts. ended is the error that
// cut the call, if there is one.
func (s *Bulk) auditCall(ctx context.Context, c caller, call string, counts any, changed int, ended error) error {
	if changed == 0 {
		return ended
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	err := tenants.Audit(ctx, s.pool, c.tenant, c.by, tenants.Change{Action: strings.Replace(call, "/", ".", 1), Target: call, After: counts})
	if ended != nil {
		return ended
	}
	return err
}
