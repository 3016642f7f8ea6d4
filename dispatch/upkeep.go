package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/forecast"
)

const (
	upkeepEvery = 20 * time.Second
	taskLimit   = 20 * time.Second // of most tasks
	chunkKept   = time.Hour
	emptyKept   = time.Hour
	emptyAgain  = time.Minute // until the next look at an empty cohort that may not be deleted yet
	processKept = time.Minute
	mostCleared = 5000
)

// tasks are the parts of upkeep that this process takes part in. Those that run every upkeepEvery run one after another, in
// this order; each of the others runs beside them.
func (d *Dispatch) tasks() (all []task) {
	if d.Dispatches {
		all = append(all,
			task{name: "tend slots", every: time.Second, limit: taskLimit, look: `SELECT FROM slot UNION ALL SELECT FROM waiting`, some: whole(d.tendSlots)},
			task{name: "tell tenants what happened", every: noticeEvery, limit: postgres.QueryTimeout, ask: d.anyNotice, some: d.addUp},
			task{name: "make partitions", every: upkeepEvery, limit: 30 * time.Second, some: whole(func(ctx context.Context) error { return d.ensurePartitions(ctx, time.Now()) })},
			task{name: "arm lost schedules", every: upkeepEvery, limit: taskLimit, some: whole(d.rearmLost)},
			task{name: "complete schedules", every: upkeepEvery, limit: taskLimit, some: full(mostCleared, d.completeSome)},
			task{name: "settle moves", every: upkeepEvery, limit: taskLimit, some: full(mostSettled, d.settleMoves)},
			task{name: "cancel waiting ticks", every: upkeepEvery, limit: taskLimit, some: full(mostCleared, d.cancelOrphans)},
			task{name: "wake forsaken ticks", every: upkeepEvery, limit: taskLimit, some: whole(d.wakeForsaken)},
			task{name: "clear cohorts", every: upkeepEvery, limit: taskLimit, some: d.clearCohorts},
			task{name: "clear chunks", every: upkeepEvery, limit: taskLimit, some: full(mostCleared, d.clearChunks)},
			task{name: "clear answers", every: upkeepEvery, limit: taskLimit, some: full(mostCleared, d.clearAnswers)},
			task{name: "clear processes", every: upkeepEvery, limit: taskLimit, some: whole(d.clearProcesses)},
			task{name: "clear rates", every: upkeepEvery, limit: taskLimit, some: whole(d.clearRates)},
			task{name: "clear operations", every: upkeepEvery, limit: taskLimit, some: full(mostCleared, d.clearOperations)},
			task{name: "clear syncs", every: upkeepEvery, limit: taskLimit, some: full(20*mostCleared, d.clearSyncs)},
			task{name: "finish erasures", every: upkeepEvery, limit: time.Minute, some: whole(d.finishErasures)},
		)
	}
	if d.Dispatches && d.Uses != nil {
		all = append(all, task{name: "look at quotas", every: quotaLook, limit: quotaLookFor, some: d.lookAtQuotas})
	}
	if d.Sweeps {
		all = append(all,
			task{name: "count members", every: time.Second, limit: taskLimit, some: whole(d.fold)},
			task{name: "add up daily use", every: foldUseEvery, limit: taskLimit, look: `SELECT FROM daily_use_delta WHERE ` + postgres.Unfolded("daily_use_delta"), some: full(mostUse, d.foldSomeUse)},
			task{name: "look for what is stuck", every: watchEvery, limit: watchLimit, some: whole(func(ctx context.Context) error { return d.watchdog.look(ctx, time.Now()) })},
			task{name: "scan for broken promises", every: scanEvery, limit: scanLimit, some: whole(d.scan)},
			task{name: "tell cohorts of edited calendars", every: markEvery, limit: taskLimit, look: calendars.LookForStale, some: d.markStale},
		)
	}
	return all
}

// upkeep runs the tasks until ctx ends.
func (d *Dispatch) upkeep(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	for _, t := range d.tasks() {
		if t.every != upkeepEvery {
			beside.Go(func() {
				loop.Every(ctx, d.Log, t.every, t.name, func(ctx context.Context) error { return d.run(ctx, t) })
			})
		}
	}
	loop.Every(ctx, d.Log, upkeepEvery, "keep house", d.keepHouse)
}

// keepHouse runs each task of upkeepEvery once, also where others fail.
func (d *Dispatch) keepHouse(ctx context.Context) error {
	var errs []error
	for _, t := range d.tasks() {
		if t.every != upkeepEvery {
			continue
		}
		if err := d.run(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.name, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Dispatch) finishErasures(ctx context.Context) error {
	if d.Erase == nil {
		return nil
	}
	return errors.Join(d.Erase(ctx), d.FinishTenants(ctx))
}

// fold adds up how many members the cohorts have, and lets the planner learn of tables that have grown.
func (d *Dispatch) fold(ctx context.Context) error {
	err := forecast.FoldTallies(ctx, d.Pool)
	if time.Since(d.analyzed) < d.rest.pace(0, restAnalyze) {
		return err
	}
	d.analyzed = time.Now()
	return errors.Join(err, postgres.AnalyzeNew(ctx, d.Pool))
}

// markStale tells cohorts of edits of their calendars where those are too many for the edit to tell all.
func (d *Dispatch) markStale(ctx context.Context) (more bool, err error) {
	return calendars.MarkStale(ctx, d.Pool)
}
