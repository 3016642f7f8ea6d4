package upkeep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/events"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/calendars"
)

const (
	upkeepEvery = 20 * time.Second
	markEvery   = time.Second
)

const (
	taskLimit   = 20 * time.Second // of most tasks
	chunkKept   = time.Hour        // after a chunk is done
	emptyKept   = time.Hour        // after a cohort is empty
	emptyAgain  = time.Minute      // until the next look at an empty cohort that must not be deleted yet
	processKept = time.Minute      // after the last heartbeat of a process
)

// Tasks returns the tasks that this process takes part in. Those that run each upkeepEvery run one after another, in this order. Each
// of the others runs beside them.
func (k *Keeper) Tasks() (all []Task) {
	if k.dispatches {
		all = append(all,
			Task{Name: "free lost slots", every: time.Second, Limit: taskLimit, look: `SELECT FROM slot UNION ALL SELECT FROM queued`, Some: whole(k.finish.FreeLostSlots)},
			Task{Name: "tell tenants what happened", every: events.NoticeEvery, Limit: postgres.QueryTimeout, ask: k.events.AnyNotice, Some: k.events.AddUp},
			Task{Name: "make partitions", every: upkeepEvery, Limit: 30 * time.Second, Some: whole(func(ctx context.Context) error { return k.EnsurePartitions(ctx, time.Now()) })},
			Task{Name: "arm lost schedules", every: upkeepEvery, Limit: taskLimit, Some: whole(k.RearmLost)},
			Task{Name: "complete schedules", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, k.CompleteSome)},
			Task{Name: "settle moves", every: upkeepEvery, Limit: taskLimit, Some: Full(mostSettled, k.settleMoves)},
			Task{Name: "cancel buffered ticks", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, k.finish.CancelOrphans)},
			Task{Name: "wake forsaken ticks", every: upkeepEvery, Limit: taskLimit, Some: whole(k.WakeForsaken)},
			Task{Name: "clear cohorts", every: upkeepEvery, Limit: taskLimit, Some: k.clearCohorts},
			Task{Name: "clear chunks", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, k.clearChunks)},
			Task{Name: "clear answers", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, k.clearAnswers)},
			Task{Name: "clear processes", every: upkeepEvery, Limit: taskLimit, Some: whole(k.ClearProcesses)},
			Task{Name: "clear rates", every: upkeepEvery, Limit: taskLimit, Some: whole(k.clearRates)},
			Task{Name: "clear operations", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, k.clearOperations)},
			Task{Name: "clear syncs", every: upkeepEvery, Limit: taskLimit, Some: Full(20*record.MostCleared, k.clearSyncs)},
			Task{Name: "finish erasures", every: upkeepEvery, Limit: time.Minute, Some: whole(k.finishErasures)},
		)
	}
	if k.dispatches && k.uses != nil {
		all = append(all, Task{Name: "look at quotas", every: events.QuotaLook, Limit: events.QuotaLookFor, Some: k.events.LookAtQuotas})
	}
	if k.sweeps {
		all = append(all,
			Task{Name: "count members", every: time.Second, Limit: taskLimit, Some: whole(k.fold)},
			Task{Name: "add up daily use", every: history.FoldUseEvery, Limit: taskLimit, look: `SELECT FROM daily_use_delta WHERE ` + postgres.Unfolded("daily_use_delta"), Some: Full(history.MostUse, k.FoldSomeUse)},
			Task{Name: "look for what is stuck", every: watchEvery, Limit: watchLimit, Some: whole(k.Watch)},
			Task{Name: "scan for broken promises", every: scanEvery, Limit: scanLimit, Some: whole(k.Scan)},
			Task{Name: "tell cohorts of edited calendars", every: markEvery, Limit: taskLimit, look: calendars.LookForStale, Some: k.markStale},
		)
	}
	return all
}

// upkeep runs the tasks until ctx ends.
func (k *Keeper) upkeep(ctx context.Context) {
	var beside sync.WaitGroup
	defer beside.Wait()
	for _, t := range k.Tasks() {
		if t.every != upkeepEvery {
			beside.Go(func() {
				loop.Every(ctx, k.log, t.every, t.Name, func(ctx context.Context) error { return k.RunTask(ctx, t) })
			})
		}
	}
	loop.Every(ctx, k.log, upkeepEvery, "run upkeep", k.RunUpkeep)
}

// RunUpkeep runs each task of upkeepEvery once, even if others fail.
func (k *Keeper) RunUpkeep(ctx context.Context) error {
	var errs []error
	for _, t := range k.Tasks() {
		if t.every != upkeepEvery {
			continue
		}
		if err := k.RunTask(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Name, err))
		}
	}
	return errors.Join(errs...)
}

// finishErasures continues erasures of keys and tenants that no request has finished.
func (k *Keeper) finishErasures(ctx context.Context) error {
	if k.erase == nil {
		return nil
	}
	return errors.Join(k.erase(ctx), k.FinishTenants(ctx))
}

// markStale marks the cohorts of edited calendars, if an edit has too many of them to mark all itself.
func (k *Keeper) markStale(ctx context.Context) (more bool, err error) {
	return calendars.MarkStale(ctx, k.pool)
}
