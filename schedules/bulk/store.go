package bulk

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// mostWriters is how many batches of one call are stored at once: PostgreSQL works on one connection with one processor.
const mostWriters = 2

// newTableBatches is after how many batches of a call the planner is told how large new tables are. Later batches change its plans little.
const newTableBatches = 3

// writer stores batches, some at once, and answers them in their order.
type writer struct {
	s        *Bulk
	tenant   tenants.ID
	by       string
	dry      bool            // nothing is stored
	group    *errgroup.Group // of the call: it waits for what the writer starts
	answered func([]Result) error

	begun  int
	flying []*batch
}

// run stores batches until there are no more. A batch that names the same schedule as an earlier batch waits for that one, so that the
// last of the lines counts.
func (w *writer) run(ctx context.Context, batches <-chan *batch) error {
	var waiting *batch
	for batches != nil || waiting != nil || len(w.flying) > 0 {
		if waiting != nil && w.free(waiting) {
			w.begin(ctx, waiting)
			waiting = nil
			continue
		}
		var landed <-chan struct{}
		if len(w.flying) > 0 {
			landed = w.flying[0].stored
		}
		in := batches
		if waiting != nil {
			in = nil
		}
		select {
		case b, more := <-in:
			if waiting = b; !more {
				batches = nil
			}
		case <-landed:
			if err := w.answered(w.flying[0].results); err != nil {
				return err
			}
			w.flying = w.flying[1:]
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// free reports whether a batch can be stored beside those that are being stored.
func (w *writer) free(b *batch) bool {
	for _, other := range w.flying {
		for name := range b.places {
			if _, both := other.places[name]; both {
				return false
			}
		}
	}
	return len(w.flying) < mostWriters
}

// begin stores a batch. Once that is done its channel is closed; an error ends the call.
func (w *writer) begin(ctx context.Context, b *batch) {
	w.begun++
	isNew := w.begun <= newTableBatches
	b.stored = make(chan struct{})
	w.flying = append(w.flying, b)
	w.group.Go(func() error {
		if err := w.s.storeBatch(ctx, w.tenant, w.by, b, w.dry); err != nil {
			return err
		}
		if isNew && !w.dry {
			if err := postgres.AnalyzeNew(ctx, w.s.pool); err != nil {
				w.s.log.Warn("cannot analyze new tables: query plans may be slow for a while", "error", err)
			}
		}
		close(b.stored)
		return nil
	})
}
