package schedules

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/tenants"
)

// BulkLine is a line of a bulk upsert: the body of a Put, with whose schedule it is. A key left out is "global".
type BulkLine struct {
	Workflow string  `json:"workflow"`
	Key      *string `json:"key,omitempty"`
	Params
}

// What became of a line.
const (
	Inserted  = "inserted"
	Updated   = "updated"
	Unchanged = "unchanged"
	Duplicate = "duplicate" // a later line of the same batch has the same workflow and key
	Failed    = "error"
)

// BulkResult is what became of one line; lines count from 1. Workflow and key are empty where the line does not tell them.
type BulkResult struct {
	Line       int        `json:"line"`
	Result     string     `json:"result"`
	Workflow   string     `json:"workflow"`
	Key        string     `json:"key"`
	ScheduleID string     `json:"schedule_id,omitempty"`
	Error      *BulkFault `json:"error,omitempty"`
}

// BulkFault is what is wrong with a line: what a Put of it would be refused with.
type BulkFault struct {
	Status int           `json:"status"`
	Code   string        `json:"code"`
	Detail string        `json:"detail"`
	Errors []fault.Field `json:"errors,omitempty"`
}

// BulkSummary counts the lines by what became of them.
type BulkSummary struct {
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

func (s *BulkSummary) count(r BulkResult) {
	switch r.Result {
	case Inserted:
		s.Inserted++
	case Updated:
		s.Updated++
	case Unchanged:
		s.Unchanged++
	case Duplicate:
		s.Duplicates++
	case Failed:
		s.Errors++
	}
}

// Bulk stores each line of body as Put would, and calls answer with the results of each batch, in the order of the lines,
// once the batch is committed. A bad line spoils no other. Of lines in one batch with the same workflow and key the last
// good one counts. An error ends the call; the batches answered by then stay. Memory does not grow with the body. Body is
// closed where it must not be read on: its Close ends a Read that is under way.
func (s *Schedules) Bulk(ctx context.Context, tenant tenants.ID, by string, body io.ReadCloser, answer func([]BulkResult) error) (sum BulkSummary, err error) {
	group, ctx := errgroup.WithContext(ctx)
	batches := make(chan *lines)
	stop := context.AfterFunc(ctx, func() { _ = body.Close() })
	group.Go(func() error {
		defer close(batches)
		defer stop()
		r := newBulkReader(s, tenant, body)
		for {
			b, err := r.next(ctx)
			if paced := s.pace(ctx, tenant, b); paced != nil {
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
		w := &bulkWriter{s: s, tenant: tenant, by: by, group: group, answered: func(results []BulkResult) error {
			for _, r := range results {
				sum.count(r)
			}
			return answer(results)
		}}
		return w.run(ctx, batches)
	})
	err = group.Wait()
	return sum, s.auditCall(ctx, change{tenant: tenant, by: by}, "bulk", sum, sum.Inserted+sum.Updated, err)
}

// storeBatch stores the good lines of a batch. Where the last of several of one key turns out to be bad, the one before
// it counts.
func (s *Schedules) storeBatch(ctx context.Context, tenant tenants.ID, by string, b *lines, dry bool) error {
	if err := tenants.CheckAuthority(ctx); err != nil {
		return err
	}
	quotas, err := s.Quotas(ctx, tenant)
	if err != nil {
		return err
	}
	s.Forecasts.Of(ctx, tenant)
	for items := b.items; len(items) > 0; {
		if err := s.storeItems(ctx, change{tenant: tenant, by: by, quotas: quotas}, items, dry); err != nil {
			return err
		}
		var again []*item
		for _, it := range items {
			result := &b.results[it.place]
			result.Result = it.result
			if it.result != Failed {
				if it.id != 0 { // but for one that is new in a dry run
					result.ScheduleID = s.IDs.Schedule(it.id)
				}
				continue
			}
			result.Error = bulkFault(it.fault)
			if it.earlier != nil {
				again = append(again, it.earlier)
			}
		}
		items = again
	}
	return nil
}

func bulkFault(f *fault.Error) *BulkFault {
	return &BulkFault{Status: f.Status, Code: f.Code, Detail: f.Detail, Errors: f.Fields}
}
