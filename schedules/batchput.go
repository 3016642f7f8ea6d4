package schedules

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// What became of an item.
const (
	Inserted  = "inserted"
	Updated   = "updated"
	Unchanged = "unchanged"
	Failed    = "error"
)

// Item is a definition to be put, and what became of it once it is stored.
type Item struct {
	Workflow string
	Key      string
	definition
	Synced bool                 // a sync lists it: if a sync paused it, it is resumed unless the line states a status
	Claims string               // the name of a label: a stored schedule with another value of it is not changed; empty: every one is
	pre    version.Precondition // what a single put demands
	whole  bool                 // the whole schedule is the answer
	origin *tenants.Origin      // of a single put: it has a row of its own in the audit

	Result  string
	ID      int64        // 0 for a schedule that a dry run would make
	Resumed bool         // a sync had paused it
	Fault   *fault.Error // of an item that failed
	row     *row         // as it is stored then
	shown   Schedule     // where the whole of it is the answer
}

func (it *Item) fail(f *fault.Error) { it.Result, it.Fault = Failed, f }

// refuse records a fault of the item. It returns any other error, which is ours.
func (it *Item) refuse(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	it.fail(f)
	return nil
}

// action returns what the audit calls the put of the item. A call of many lines has an audit of its own.
func (it *Item) action() string {
	if it.whole {
		return "put"
	}
	return ""
}

const (
	mostTogether = 1000 // schedules are found and changed in one transaction
	batchTimeout = 30 * time.Second
)

// PutAll stores items that differ in workflow or key, as Put would store each, in one transaction. It writes into each item what became of
// it. A dry call stores nothing, and tells what would become of each.
func (s *Schedules) PutAll(ctx context.Context, tenant tenants.ID, by string, items []*Item, dry bool) error {
	quotas, err := s.Quotas(ctx, tenant)
	if err != nil {
		return err
	}
	s.Forecasts.Of(ctx, tenant)
	c := change{tenant: tenant, by: by, quotas: quotas}
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	over, err := s.Forecasts.ShardsFor(ctx, c.tenant)
	if err != nil {
		return err
	}
	also := map[int16]bool{}
	for range mostRaces {
		err = postgres.Retry(ctx, func() error {
			return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
				u := s.newUpserts(tx, c, items, over)
				u.batch.dry, u.also = dry, also
				if err := u.run(ctx); err != nil || !dry {
					return err
				}
				return errDry
			})
		})
		if errors.Is(err, errDry) {
			return nil
		}
		if !errors.Is(err, errRaced) {
			return err
		}
	}
	for _, it := range items {
		it.fail(fault.Unavailable("busy", "schedules of this batch are being changed by others; send the line again"))
	}
	return nil
}

// storePuts stores single puts in one transaction, and writes into each the schedule that it answers.
func (s *Schedules) storePuts(ctx context.Context, c change, items []*Item) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	over, err := s.Forecasts.ShardsFor(ctx, c.tenant)
	if err != nil {
		return err
	}
	ahead := s.Forecasts.Of(ctx, c.tenant)
	return postgres.Retry(ctx, func() error { // the end of a tick locks in another order than handing out, and may deadlock with it
		return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
			u := s.newUpserts(tx, c, items, over)
			if err := u.run(ctx); err != nil {
				return err
			}
			for _, it := range items {
				if it.Result == Failed {
					continue
				}
				if it.shown, err = it.row.answer(ctx, tx, s, ahead, u.batch.change); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// errDry rolls back the transaction of a dry run.
var errDry = errors.New("a dry run")

// upserts puts definitions: it finds which are stored, decides what becomes of each, and writes all of them at once.
type upserts struct {
	batch  *batch
	items  []*Item
	over   int16                        // over how many shards new schedules go
	also   map[int16]bool               // shards to lock beside those of new schedules; what a try finds out, the next knows
	labels map[string]map[string]string // by their text

	shards []int16 // of each item: where it is stored, or is to be
	read   []*row  // those that are locked and read
	stored []int   // items that are stored and differ, by their place
	fresh  []int   // items that are not stored
}

func (s *Schedules) newUpserts(tx pgx.Tx, c change, items []*Item, over int16) *upserts {
	for _, it := range items { // an earlier try may have come to something else
		it.Result, it.ID, it.Resumed, it.Fault, it.row = "", 0, false, nil, nil
	}
	return &upserts{batch: s.newBatch(tx, c), items: items, over: over, labels: map[string]map[string]string{}}
}

func (u *upserts) run(ctx context.Context) error {
	if err := u.follow(ctx); err != nil {
		return err
	}
	if err := u.find(ctx); err != nil {
		return err
	}
	if err := u.consult(ctx); err != nil {
		return err
	}
	for _, some := range [][]int{u.stored, u.fresh} {
		for _, ord := range some {
			u.batch.space.bytes += u.items[ord].held()
		}
	}
	if err := u.redefineStored(ctx); err != nil {
		return err
	}
	if err := u.defineFresh(ctx); err != nil {
		return err
	}
	if err := u.batch.write(ctx); err != nil {
		return err
	}
	for _, it := range u.items {
		if it.row != nil {
			it.ID = it.row.ID
		}
	}
	return nil
}

// follow reads the profiles of the subjects that items follow, or their fallback zones, and keeps the profiles as they are until the
// transaction ends. The operation that a change of a fallback zone begins waits for the same locks.
func (u *upserts) follow(ctx context.Context) error {
	var subjects []string
	var followers []cohorts.Follower
	for _, it := range u.items {
		if cohorts.FollowsSubject(it.spec) {
			subject := cmp.Or(it.subject, it.Key)
			subjects, followers = append(subjects, subject), append(followers, cohorts.Follower{Workflow: it.Workflow, Subject: subject})
		}
	}
	if len(subjects) == 0 {
		return nil
	}
	if err := cohorts.LockSubjects(ctx, u.batch.tx, u.batch.tenant, cohorts.ToFollow, subjects...); err != nil {
		return err
	}
	found, err := cohorts.ReadProfiles(ctx, u.batch.tx, u.batch.tenant, followers...)
	if err != nil {
		return err
	}
	for _, it := range u.items {
		if cohorts.FollowsSubject(it.spec) {
			it.profile = found[cohorts.Follower{Workflow: it.Workflow, Subject: cmp.Or(it.subject, it.Key)}]
		}
	}
	return nil
}

// find locks the shards, and finds which items are stored. Single puts read and lock their rows at once, because each answers its
// schedule. Lines of a body lock only the rows that they would change.
func (u *upserts) find(ctx context.Context) error {
	if slices.ContainsFunc(u.items, func(it *Item) bool { return !it.whole }) {
		return u.match(ctx)
	}
	names := make([]scheduleName, len(u.items))
	u.shards = make([]int16, len(u.items))
	for i, it := range u.items {
		names[i] = scheduleName{it.Workflow, it.Key}
		u.shards[i] = cohorts.ShardFor(u.batch.tenant, u.over, it.Workflow, it.Key)
	}
	rows, err := u.batch.lockNamed(ctx, names, u.shards)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if r == nil {
			u.fresh = append(u.fresh, i)
			continue
		}
		u.shards[i], u.items[i].ID, u.items[i].Result = r.Shard, r.ID, Unchanged
		u.read, u.stored = append(u.read, r), append(u.stored, i)
	}
	return nil
}

// consult gives the definitions the calendars that they name, and keeps those as they are.
func (u *upserts) consult(ctx context.Context) error {
	var names []string
	for _, it := range u.items {
		names = append(names, cohorts.CalendarsOf(it.spec)...)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	a, err := u.batch.schedules.Timings.HoldCalendars(ctx, u.batch.tx, u.batch.tenant, slices.Compact(names))
	if err != nil {
		return err
	}
	for _, it := range u.items {
		if len(cohorts.CalendarsOf(it.spec)) > 0 {
			it.almanac = a
		}
	}
	return nil
}

// redefineStored applies the items to the rows that are stored.
func (u *upserts) redefineStored(ctx context.Context) error {
	if len(u.stored) == 0 {
		return nil
	}
	ords, delayed := make(map[int64]int, len(u.stored)), map[int64]bool{}
	ids := make([]int64, len(u.stored))
	for i, ord := range u.stored {
		it := u.items[ord]
		ids[i], ords[it.ID], delayed[it.ID] = it.ID, ord, hasDelay(it.spec)
	}
	if u.read == nil {
		var err error
		if u.read, err = u.batch.lockRows(ctx, ids); err != nil {
			return err
		}
		if len(u.read) < len(ids) { // deleted since we looked
			return errRaced
		}
	}
	if err := u.batch.prepare(ctx, u.read, delayed); err != nil {
		return err
	}
	for _, r := range u.read {
		ord := ords[r.ID]
		if r.Shard != u.shards[ord] {
			return errRaced
		}
		it := u.items[ord]
		it.row = r
		if err := u.redefineItem(ctx, it); err != nil {
			if err := it.refuse(err); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *upserts) redefineItem(ctx context.Context, it *Item) error {
	if err := it.pre.Check(true, int64(it.row.Version)); err != nil {
		return err
	}
	if other, has := it.row.Labels[it.Claims]; has && it.Claims != "" && other != it.labels[it.Claims] {
		return fault.Conflict("claimed", "the schedule belongs to another list: it has the label %s:%s", it.Claims, other)
	}
	d, paused := it.definition, it.row.PausedBy != nil
	if paused && it.Synced && d.status == "" {
		fires, err := u.fires(ctx, it)
		if err != nil {
			return err
		}
		if fires {
			d.status = policy.Active
		}
	}
	w, err := u.batch.redefine(ctx, it.row, d, it.action())
	if err != nil || w == nil {
		return err
	}
	w.origin, it.Result = it.origin, Updated
	it.Resumed = paused && it.row.Status == policy.Active
	return nil
}

// fires reports whether a paused schedule has a nominal time left if it is resumed. A definition with another spec has faults of its own.
func (u *upserts) fires(ctx context.Context, it *Item) (bool, error) {
	r := it.row
	if r.Spec != it.specText {
		return true, nil
	}
	if r.TicksLeft != nil && *r.TicksLeft < 1 {
		return false, nil
	}
	t, err := r.timing(ctx, u.batch.tx, u.batch.schedules.Timings, u.batch.tenant)
	if errors.Is(err, cohorts.ErrUncomputable) {
		return true, nil
	}
	if err != nil || runs.Delays(t) {
		return err == nil, err
	}
	_, ok := t.Next(u.batch.now)
	return ok, nil
}
