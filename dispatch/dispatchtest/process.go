package dispatchtest

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/carillonhq/carillon/dispatch"
	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/open"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/sweep"
	"github.com/carillonhq/carillon/dispatch/upkeep"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// Process is one process of Carillon, with what tests do step by step.
type Process struct {
	*dispatch.Dispatch
	Chunker *sweep.Chunker
	pool    *pgxpool.Pool
}

// Register joins the processes without beginning to work.
func (d *Process) Register(ctx context.Context) error { return d.Member.Register(ctx) }

// SweepOnce sweeps one batch of a shard.
func (d *Process) SweepOnce(ctx context.Context, shard int16) (more bool, err error) {
	return d.Sweeper.SweepOnce(ctx, shard)
}

// Open opens a chunk.
func (d *Process) Open(ctx context.Context, chunk int64) error {
	if err := d.rejoin(ctx); err != nil {
		return err
	}
	return d.Opener.Open(ctx, chunk)
}

// rejoin makes a process that joined without beginning to work count as living, even on a busy machine: it sends no heartbeats.
func (d *Process) rejoin(ctx context.Context) error {
	if _, alive := d.Member.Self(); !alive {
		if err := d.Member.Register(ctx); err != nil {
			return err
		}
	}
	d.Member.LiveUntil(time.Now().Add(time.Hour)) // the next step may take longer than a process may be silent
	return nil
}

// OpenRun opens the chunks of a sweep from one to another.
func (d *Process) OpenRun(ctx context.Context, first, through int64) error {
	if err := d.rejoin(ctx); err != nil {
		return err
	}
	return d.Opener.OpenRun(ctx, first, through)
}

// Reach is the number of the last chunk that a late job may open from one on.
func (d *Process) Reach(ctx context.Context, first int64) (int64, error) {
	return d.Opener.Reach(ctx, first)
}

// ReachOf returns the query that a late job makes for a chunk.
func ReachOf(first int64) (sql string, args []any) {
	return open.ReachOfJob, []any{first, first + open.ChunksLookedAt, chunk.LargeLane, chunk.TicksOfAJob, chunk.ChunksOfAJob}
}

// WorkLate runs the job of a chunk, two seconds late.
func (d *Process) WorkLate(ctx context.Context, number int64) error {
	if err := d.rejoin(ctx); err != nil {
		return err
	}
	job := &river.Job[chunk.JobArgs]{JobRow: &rivertype.JobRow{ScheduledAt: time.Now().Add(-2 * time.Second)}, Args: chunk.JobArgs{Chunk: number}}
	return d.Opener.Worker().Work(ctx, job)
}

// Retain deletes what is past its retention at a moment.
func (d *Process) Retain(ctx context.Context, now time.Time) error { return d.Keeper.Retain(ctx, now) }

// RetainSchedules deletes the ended ticks that their schedules do not keep at a moment, without a limit on its time.
func (d *Process) RetainSchedules(ctx context.Context, now time.Time) error {
	return d.Keeper.RetainSchedules(ctx, now)
}

// RetainDays drops and thins the days of the record that are past their retention at a moment.
func (d *Process) RetainDays(ctx context.Context, now time.Time) error {
	return d.Keeper.RetainDays(ctx, now)
}

// Doubt adds chunks that this process gave up: its next look at open chunks checks them.
func (d *Process) Doubt(chunks ...int64) { d.Pusher.Doubts().Add(chunks) }

// Complete marks the schedules that have no nominal time left.
func (d *Process) Complete(ctx context.Context) error {
	return d.RunTask(ctx, "complete", time.Minute, d.Keeper.Fresh(upkeep.Complete).Some)
}

// RunTask runs a task with a limit, until some reports that there is no more.
func (d *Process) RunTask(ctx context.Context, name string, limit time.Duration, some func(context.Context) (bool, error)) error {
	return d.Keeper.RunTask(ctx, upkeep.Task{Name: name, Limit: limit, Some: some})
}

// TaskLocks are the classes and numbers of the advisory locks of all tasks.
func (d *Process) TaskLocks() (class postgres.LockClass, numbers []int32) {
	for _, t := range d.Keeper.Tasks() {
		numbers = append(numbers, upkeep.TaskLock(t.Name))
	}
	return postgres.TaskLocks, numbers
}

// RearmLost arms schedules with fixed_delay that nothing would ever arm.
func (d *Process) RearmLost(ctx context.Context) error { return d.batch(ctx, upkeep.ArmLost) }

// batch runs one batch of a task of upkeep.
func (d *Process) batch(ctx context.Context, task string) error {
	_, err := d.Keeper.Batch(ctx, task)
	return err
}

// KeepAside makes results that cannot be written wait for that long.
func (d *Process) KeepAside(kept time.Duration) { d.Pusher.SetLimits(push.Limits{KeepResults: kept}) }

// Room makes the queue of each endpoint hold no more than n ticks.
func (d *Process) Room(n int) { d.Pusher.SetLimits(push.Limits{QueuedTicks: n}) }

// PushAtOnce makes this process have at most so many requests to endpoints in flight.
func (d *Process) PushAtOnce(n int) { d.Pusher.SetLimits(push.Limits{Requests: n}) }

// QueuedBytes returns how many bytes of payloads wait in memory to be pushed, and how many one endpoint's queue has room for.
func (d *Process) QueuedBytes() (held, room int) {
	return d.Pusher.QueuedBytes()
}

// CountUnopened counts the unopened chunks of each tenant.
func (d *Process) CountUnopened(ctx context.Context) error { return d.Backlog.Count(ctx) }

// OpenStale opens chunks that no job opens.
func (d *Process) OpenStale(ctx context.Context) error {
	if err := d.rejoin(ctx); err != nil {
		return err
	}
	return d.Opener.OpenStale(ctx)
}

// CancelOrphans cancels buffered ticks of deleted schedules.
func (d *Process) CancelOrphans(ctx context.Context) error {
	_, err := d.Keeper.Fresh(upkeep.CancelOrphans).Some(ctx)
	return err
}

// FoldUse adds up what was used since the last time.
func (d *Process) FoldUse(ctx context.Context) error {
	return d.batch(ctx, upkeep.AddUpUse)
}

// Watchdog returns what looks for what is stuck, at a moment.
func (d *Process) Watchdog() func(ctx context.Context, now time.Time) error {
	return d.Keeper.Watchdog()
}

// OrphanOwners are owners of open chunks that have no row among the processes.
var OrphanOwners = open.OrphanOwners

// TakeOwnedBy takes, as $1, up to $3 open chunks of processes $2 that were opened from $4 on.
const TakeOwnedBy = open.TakeOwnedBy

// TakeOwned takes over the chunks of dead processes, and the chunks that this process owns but does not know.
func (d *Process) TakeOwned(ctx context.Context) error {
	if err := d.rejoin(ctx); err != nil {
		return err
	}
	return d.Opener.TakeOwned(ctx)
}

// ReadsOfOpening are what an opening reads of chunks from $1 to $2. The numbers of earlier ones begin at $3, or are among $4.
var ReadsOfOpening = []string{`SELECT ` + chunk.Columns + ` FROM chunk c WHERE ` + chunk.OfRun + ` AND $3::bigint = 0 AND $4::bigint[] = '{}'`, open.EarlierChunks}

// RunUpkeep runs the periodic tasks of upkeep once.
func (d *Process) RunUpkeep(ctx context.Context) error { return d.Keeper.RunUpkeep(ctx) }

// Notice folds happenings into notices once, and makes events of due notices.
func (d *Process) Notice(ctx context.Context) error {
	_, err := d.Events.AddUp(ctx)
	return err
}

// EnsurePartitions creates the partitions of the record from yesterday to a week ahead.
func (d *Process) EnsurePartitions(ctx context.Context, now time.Time) error {
	return d.Keeper.EnsurePartitions(ctx, now)
}

// Wake wakes parked ticks whose wait has ended.
func (d *Process) Wake(ctx context.Context) error { return d.Waker.WakeAll(ctx) }

// WakeForsaken looks for parked ticks whose wait has ended without a change.
func (d *Process) WakeForsaken(ctx context.Context) error {
	_, err := d.Keeper.Fresh(upkeep.WakeForsaken).Some(ctx)
	return err
}

// ReadDue reads the due cohorts of shard $1.
const ReadDue = `SELECT ` + sweep.DueColumns + ` FROM cohort c WHERE c.shard = $1 AND c.due_at <= now()`

// Owe charges a tenant for ticks that were handed out without tokens.
func (d *Process) Owe(tenant tenants.ID, n int) { d.Sweeper.Charge(tenant, "", n) }

// SettleDebts writes down what tenants owe.
func (d *Process) SettleDebts(ctx context.Context) error { return d.Sweeper.SettleDebts(ctx) }

// ReadForsaken reads up to $3 waits that follow tenant $1 and name $2.
const ReadForsaken = upkeep.ReadForsaken

// TimedByNewer tells whether the timing of a cohort's ticks can be computed by a newer program only.
func (d *Process) TimedByNewer(ctx context.Context, tenant tenants.ID, shard int16, cohort int64) (bool, error) {
	timings, newer, err := d.Messages.TimingsOf(ctx, d.pool, tenant, []*record.Tick{{Shard: shard, CohortID: &cohort}})
	return err == nil && timings[0] == nil && newer[0], err
}

// Look looks once for due shards.
func (d *Process) Look(ctx context.Context) (due []int16, err error) {
	if err := d.rejoin(ctx); err != nil {
		return nil, err
	}
	for len(d.Member.Shards()) == 0 { // it took so long to join that it did not count itself as living
		if err := d.Member.Register(ctx); err != nil {
			return nil, err
		}
		d.Member.LiveUntil(time.Now().Add(time.Hour))
	}
	found := make(chan int16, cohorts.Shards)
	_, err = d.Sweeper.Look(ctx, sweep.NewShardSet(), found)
	close(found)
	for shard := range found {
		due = append(due, shard)
	}
	return due, err
}

// MeasureHorizon looks once which transactions are open.
func (d *Process) MeasureHorizon(ctx context.Context) error { return d.Horizon.Read(ctx, d.pool) }

// Watch looks once for what is stuck, and for broken promises.
func (d *Process) Watch(ctx context.Context) error {
	return errors.Join(d.batch(ctx, upkeep.LookForStuck), d.batch(ctx, upkeep.ScanPromises))
}

// EndLeases ends once the leases that are due.
func (d *Process) EndLeases(ctx context.Context) error { return d.Expiry.EndDueLeases(ctx) }

// LeasedTicks counts the ticks that the workers of tenant $1 hold.
const LeasedTicks = record.LeasedTicks

// WakePolled looks for ready ticks of a workflow that a poll waits for.
func (d *Process) WakePolled(ctx context.Context, tenant tenants.ID, workflow string) error {
	return d.Polls.WakePollsOf(ctx, cluster.Polled{Tenants: []int32{int32(tenant)}, Workflows: []string{workflow}})
}

// AnyNotice looks whether there is anything to tell tenants.
func (d *Process) AnyNotice(ctx context.Context) (bool, error) { return d.Events.AnyNotice(ctx) }

// ClaimEvents takes due events.
func (d *Process) ClaimEvents(ctx context.Context, n int) (int, error) {
	found, err := d.Events.ClaimEvents(ctx, nil, n)
	return len(found), err
}

// BeatOnce writes one heartbeat, and reads which other processes live.
func (d *Process) BeatOnce(ctx context.Context) error {
	if err := d.rejoin(ctx); err != nil {
		return err
	}
	return d.Member.BeatOnce(ctx)
}

// ClearProcesses deletes the processes that are gone.
func (d *Process) ClearProcesses(ctx context.Context) error {
	return d.batch(ctx, upkeep.ClearProcesses)
}
