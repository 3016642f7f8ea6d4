package upkeep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/events"
	"github.com/carillonhq/carillon/dispatch/expect"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/tenants"
)

// The names of tasks that tests run by themselves.
const (
	ArmLost        = "arm lost schedules"
	Complete       = "complete schedules"
	CancelOrphans  = "cancel buffered ticks"
	WakeForsaken   = "wake forsaken ticks"
	ClearProcesses = "clear processes"
	AddUpUse       = "add up daily use"
	LookForStuck   = "look for what is stuck"
	ScanPromises   = "scan for broken promises"

	LookAtExpectations = "look at expectations"
)

const (
	upkeepEvery = 20 * time.Second
	markEvery   = time.Second
)

// mostSearched bounds how many index entries a run reads in a search below a floor.
const mostSearched = 20_000

const (
	taskLimit   = 20 * time.Second // of most tasks
	chunkKept   = time.Hour        // after a chunk is done
	emptyKept   = time.Hour        // after a cohort is empty
	emptyAgain  = time.Minute      // until the next look at an empty cohort that must not be deleted yet
	processKept = time.Minute      // after the last heartbeat of a process
)

// newTasks returns all tasks of upkeep, and says which of them this process runs. Those that run each upkeepEvery run one after another, in this order. Each
// of the others runs beside them.
func newTasks(c Config, delays *delayWalk, eraser *tenantEraser, days *dayPartitions) []Task {
	watchdog := newWatchdog(c, delays)
	watchdog.exhausted.pause = &cluster.Seldom{Every: watchEvery}
	lost := &lostDelays{walk: delays, log: c.Log, finish: c.Finish}
	completion := newCompletion(c)
	moves := newMoves(c)
	parked := &parked{pool: c.Pool, push: c.Push, pause: cluster.Seldom{Every: upkeepEvery}}
	clearing := newClearing(c)
	folding := &folding{c.Pool}
	statistics := &statistics{pool: c.Pool, idle: c.Idle}
	scanning := &scanning{c.Pool, c.Unopened, c.Horizon, &watchdog.late.floors, c.Metrics}
	dispatches, sweeps := c.Dispatches, c.Sweeps
	return []Task{
		{in: dispatches, Name: "free lost slots", every: time.Second, Limit: taskLimit, ask: c.Finish.AnySlot, Some: whole(c.Finish.FreeLostSlots)},
		{in: dispatches, Name: "tell tenants what happened", every: events.NoticeEvery, Limit: postgres.QueryTimeout, ask: c.Events.AnyNotice, Some: c.Events.AddUp},
		{in: dispatches, Name: LookAtExpectations, every: expect.LookEvery, Limit: expect.LookLimit, Some: c.Expect.Look},
		{in: dispatches, Name: "make partitions", every: upkeepEvery, Limit: 30 * time.Second, Some: whole(func(ctx context.Context) error { return days.ensure(ctx, time.Now()) })},
		{in: dispatches, Name: ArmLost, every: upkeepEvery, Limit: taskLimit, Some: whole(lost.rearm)},
		{in: dispatches, Name: Complete, every: upkeepEvery, Limit: taskLimit, Some: completion.completeSome},
		{in: dispatches, Name: "settle moves", every: upkeepEvery, Limit: taskLimit, Some: moves.settleSome},
		{in: dispatches, Name: CancelOrphans, every: upkeepEvery, Limit: taskLimit, Some: paced(record.MostCleared, c.Finish.CancelOrphans)},
		{in: dispatches, Name: WakeForsaken, every: upkeepEvery, Limit: taskLimit, Some: whole(parked.wakeForsaken)},
		{in: dispatches, Name: "clear cohorts", every: upkeepEvery, Limit: taskLimit, Some: clearing.clearCohorts},
		{in: dispatches, Name: "clear chunks", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, clearing.clearOld(&clearing.old.chunks))},
		{in: dispatches, Name: "clear answers", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, clearing.clearOld(&clearing.old.answers))},
		{in: dispatches, Name: ClearProcesses, every: upkeepEvery, Limit: taskLimit, Some: whole(clearing.clearProcesses)},
		{in: dispatches, Name: "clear rates", every: upkeepEvery, Limit: taskLimit, Some: whole(clearing.clearRates)},
		{in: dispatches, Name: "clear operations", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, clearing.clearOperations)},
		{in: dispatches, Name: "clear pauses of operations", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, clearing.clearOld(&clearing.old.pauses))},
		{in: dispatches, Name: "clear health of endpoints", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, clearing.clearOld(&clearing.old.health))},
		{in: dispatches, Name: "clear minutes of series", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, clearing.clearOld(&clearing.old.minutes))},
		{in: dispatches, Name: "clear hours of series", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, clearing.clearOld(&clearing.old.hours))},
		{in: dispatches, Name: "clear syncs", every: upkeepEvery, Limit: taskLimit, Some: Full(20*record.MostCleared, clearing.clearSyncs)},
		{in: dispatches, Name: "finish erasures", every: upkeepEvery, Limit: time.Minute, Some: whole(finishErasures(c.Erase, eraser))},
		{in: dispatches && c.Uses != nil, Name: "look at quotas", every: events.QuotaLook, Limit: events.QuotaLookFor, Some: c.Events.LookAtQuotas},
		{in: dispatches, Name: "tell of keys that expire", every: upkeepEvery, Limit: taskLimit, Some: Full(record.MostCleared, func(ctx context.Context) (int64, error) {
			return tenants.TellExpiring(ctx, c.Pool, record.MostCleared)
		})},
		{in: sweeps, Name: "count members", every: time.Second, Limit: taskLimit, look: forecast.LookForDeltas, Some: whole(func(ctx context.Context) error {
			return forecast.FoldTallies(ctx, c.Pool)
		})},
		{in: sweeps, Name: "analyze new tables", every: time.Second, Limit: taskLimit, ask: statistics.due, Some: whole(statistics.update)},
		{in: sweeps, Name: AddUpUse, every: history.FoldUseEvery, Limit: taskLimit, look: `SELECT FROM daily_use_delta WHERE ` + postgres.Unfolded("daily_use_delta"), Some: Full(history.MostUse, folding.addUpUse)},
		{in: sweeps, Name: LookForStuck, every: watchEvery, Limit: watchLimit, Some: whole(func(ctx context.Context) error { return watchdog.look(ctx, time.Now()) })},
		{in: sweeps, Name: ScanPromises, every: scanEvery, Limit: scanLimit, Some: whole(scanning.scan)},
		{in: sweeps, Name: "tell cohorts of edited calendars", every: markEvery, Limit: taskLimit, look: calendars.LookForStale, Some: markStale(c.Pool)},
	}
}

// Tasks returns the tasks that this process takes part in.
func (k *Keeper) Tasks() (all []Task) {
	for _, t := range k.tasks {
		if t.in {
			all = append(all, t)
		}
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
				loop.Every(ctx, k.log, t.every, t.Name, func(ctx context.Context) error { return k.runner.run(ctx, t) })
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
		if err := k.runner.run(ctx, t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Name, err))
		}
	}
	return errors.Join(errs...)
}

// finishErasures returns a function that continues erasures of keys and tenants that no request has finished.
func finishErasures(keys func(ctx context.Context) error, tenants *tenantEraser) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if keys == nil {
			return nil
		}
		return errors.Join(keys(ctx), tenants.finish(ctx))
	}
}

// markStale returns a function that marks the cohorts of edited calendars, if an edit has too many of them to mark all itself.
func markStale(pool *pgxpool.Pool) func(ctx context.Context) (more bool, err error) {
	return func(ctx context.Context) (more bool, err error) { return calendars.MarkStale(ctx, pool) }
}
