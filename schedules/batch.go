package schedules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

const batchTimeout = 30 * time.Second

// storeItems stores lines that differ in workflow or key, in one transaction, and says in each what became of it. A dry
// one stores nothing, and says what would.
func (s *Schedules) storeItems(ctx context.Context, tenant tenants.ID, by string, items []*item, quotas tenants.Quotas, dry bool) error {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	spread, err := s.Forecasts.ShardsFor(ctx, tenant)
	if err != nil {
		return err
	}
	also := map[int16]bool{}
	for range mostRaces {
		err = postgres.Retry(ctx, func() error {
			return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
				l := s.newLoad(tx, tenant, by, items, quotas, also)
				l.dry = dry
				if err := l.run(ctx, spread); err != nil || !dry {
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

func (s *Schedules) newLoad(tx pgx.Tx, tenant tenants.ID, by string, items []*item, quotas tenants.Quotas, also map[int16]bool) *load {
	return &load{Schedules: s, tx: tx, tenant: tenant, by: by, quotas: quotas, items: items, memo: newMemo(), also: also, labels: map[string]map[string]string{}}
}

func (it *item) fail(f *fault.Error) { it.result, it.fault = Failed, f }

// load is one batch on its way into the database: what is found, then what is decided, then what is written, each for
// all lines at once. The rules are those of a single Put.
type load struct {
	*Schedules
	tx     pgx.Tx
	tenant tenants.ID
	by     string
	quotas tenants.Quotas
	items  []*item
	memo   *memo
	dry    bool           // nothing is written
	also   map[int16]bool // shards to lock beside those of new schedules; what a try finds out, the next knows
	labels map[string]map[string]string

	now    time.Time
	shards []int16         // of each item: where it is stored, or is to be
	stored []int           // items that are stored and differ, by their place
	fresh  []int           // items that are not stored
	space  *forecast.Space // for bytes of its rows; nil: not looked at yet

	rows    []*rewrite // to be written
	due     []Due
	ends    []membership
	renewed map[*calendar.Timing]renewal
}

// change returns who changes the schedules of the load, when, and within which quotas.
func (l *load) change() change { return change{l.tenant, l.by, l.now, l.quotas} }

type membership struct {
	cohort, spread, schedule int64
	alone                    *row // with fixed_delay: who has left
}

func (l *load) run(ctx context.Context, spread int16) error {
	if err := l.follow(ctx); err != nil {
		return err
	}
	if err := l.look(ctx, spread); err != nil {
		return err
	}
	if err := l.consult(ctx); err != nil {
		return err
	}
	if err := l.redefineStored(ctx); err != nil {
		return err
	}
	if err := l.defineFresh(ctx); err != nil {
		return err
	}
	if len(l.rows) == 0 || l.dry {
		return nil
	}
	if err := l.findCohorts(ctx); err != nil {
		return err
	}
	return l.write(ctx)
}

// follow reads the profiles of the keys that lines follow, which stand until the transaction ends.
func (l *load) follow(ctx context.Context) error {
	var keys []string
	for _, it := range l.items {
		if cohorts.FollowsKey(it.spec) {
			keys = append(keys, it.key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := cohorts.LockKeys(ctx, l.tx, l.tenant, cohorts.ToFollow, keys...); err != nil {
		return err
	}
	found, err := cohorts.ReadProfiles(ctx, l.tx, l.tenant, keys...)
	if err != nil {
		return err
	}
	for _, it := range l.items {
		if cohorts.FollowsKey(it.spec) {
			it.profile = found[it.key]
		}
	}
	return nil
}

// look locks the shards, in ascending order, and finds which lines are stored, and which of those say what is stored.
func (l *load) look(ctx context.Context, spread int16) error {
	l.shards = make([]int16, len(l.items))
	workflows, keys := make([]string, len(l.items)), make([]string, len(l.items))
	locked := maps.Clone(l.also)
	for i, it := range l.items {
		l.shards[i] = cohorts.ShardFor(l.tenant, spread, it.workflow, it.key)
		workflows[i], keys[i] = it.workflow, it.key
		for _, shard := range cohorts.PossibleShards(l.tenant, spread, it.workflow, it.key) {
			locked[shard] = true
		}
	}
	var s stored
	columns, fields := storedColumns, s.fields()
	if !slices.ContainsFunc(l.items, func(it *item) bool { return !it.whole }) { // each is read whole once it is locked
		columns, fields = placeColumns, s.place()
	}
	var b pgx.Batch
	b.Queue(`SELECT pg_advisory_xact_lock_shared($1, shard)::text FROM unnest($2::int[]) AS n (shard)`, cohorts.ShardLocks, slices.Sorted(maps.Keys(locked)))
	// In a statement of its own: one that waited for the lock would show the others' rows as they were before it. Each line
	// is looked up by the index, whatever the planner knows of the table: a subquery with an OFFSET is not taken apart.
	b.Queue(`
		SELECT n.ord - 1, s.*
		FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS n (workflow, key, ord)
		CROSS JOIN LATERAL (
			SELECT `+columns+`
			FROM schedule
			WHERE tenant_id = $1 AND workflow = n.workflow AND key = n.key
			OFFSET 0
		) s`, l.tenant, workflows, keys)
	b.Queue(`SELECT ` + postgres.Now)
	results := l.tx.SendBatch(ctx, &b)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return fmt.Errorf("lock shards: %w", err)
	}
	found, err := l.match(results, locked, &s, fields)
	if err != nil {
		return err
	}
	if err := results.QueryRow().Scan(&l.now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	l.now = l.now.UTC()
	for i, is := range found {
		if !is {
			l.fresh = append(l.fresh, i)
		}
	}
	return results.Close()
}

// match reads what is stored of the lines, and says of which something is. Where one lies in a shard that is not locked,
// as its tenant's schedules were once laid elsewhere, the next try locks it too.
func (l *load) match(results pgx.BatchResults, locked map[int16]bool, s *stored, fields []any) (found []bool, err error) {
	found = make([]bool, len(l.items))
	var ord int
	elsewhere := false
	rows, _ := results.Query() // ForEachRow reports the error
	_, err = pgx.ForEachRow(rows, append([]any{&ord}, fields...), func() error {
		if !locked[s.shard] {
			l.also[s.shard], elsewhere = true, true
		}
		it := l.items[ord]
		found[ord], l.shards[ord], it.id = true, s.shard, s.id
		it.result = Unchanged
		if it.whole {
			l.stored = append(l.stored, ord)
			return nil
		}
		says, err := s.says(it.definition, l.labels)
		if !says {
			l.stored = append(l.stored, ord)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find what is stored: %w", err)
	}
	if elsewhere {
		return nil, errRaced
	}
	return found, nil
}

// consult gives the definitions the calendars that they name, and keeps those as they are.
func (l *load) consult(ctx context.Context) error {
	var names []string
	for _, it := range l.items {
		names = append(names, cohorts.CalendarsOf(it.spec)...)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	a, err := l.Timings.HoldCalendars(ctx, l.tx, l.tenant, slices.Compact(names))
	if err != nil {
		return err
	}
	for _, it := range l.items {
		if len(cohorts.CalendarsOf(it.spec)) > 0 {
			it.almanac = a
		}
	}
	return nil
}

// refuse notes a fault of the line; any other error is ours, and is returned.
func (it *item) refuse(err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	it.fail(f)
	return nil
}

// defineFresh decides what becomes of lines that are not stored, and registers their workflows.
func (l *load) defineFresh(ctx context.Context) error {
	if len(l.fresh) == 0 {
		return nil
	}
	defaults, err := l.defaults(ctx)
	if err != nil {
		return err
	}
	room, stored, err := l.Forecasts.Room(ctx, l.tx, l.tenant, len(l.fresh), l.quotas)
	if err != nil {
		return err
	}
	missing := map[string]bool{}
	workflows := -1 // how many there are, once that is asked
	for _, ord := range l.fresh {
		it := l.items[ord]
		if err := it.pre.Check(false, 0); err != nil {
			if err := it.refuse(err); err != nil {
				return err
			}
			continue
		}
		r, t, err := l.newborn(policy.Name{Tenant: l.tenant, Workflow: it.workflow, Key: it.key}, l.shards[ord], it.definition, l.change(), l.memo)
		w := &rewrite{row: r, ord: ord, newborn: true}
		if err == nil && room < 1 {
			err = tenants.Exceeded("schedules", l.quotas.Schedules, stored)
		}
		if _, there := defaults[it.workflow]; err == nil && !there && !missing[it.workflow] {
			if workflows < 0 {
				if workflows, err = countWorkflows(ctx, l.tx, l.tenant); err != nil {
					return err
				}
			}
			if workflows+len(missing) >= mostWorkflows {
				err = tenants.Exceeded("workflows", mostWorkflows, workflows+len(missing))
			}
		}
		if err == nil {
			err = l.takeSpace(ctx, r.held())
		}
		if err == nil && r.Status == Active {
			err = l.afford(l.tenant, r, effect{timing: t}, nil, l.quotas, l.now)
		}
		if err == nil {
			known, ok := defaults[it.workflow]
			r.Defaults = known
			if r.Status == Active {
				err = l.rearmLater(ctx, w, effect{timing: t})
			}
			if err == nil && !ok {
				missing[it.workflow] = true
			}
		}
		if err != nil {
			if err := it.refuse(err); err != nil {
				return err
			}
			continue
		}
		w.after = r.coming(t, l.now)
		l.rows = append(l.rows, w)
		room, stored = room-1, stored+1
		it.row, it.result = r, Inserted
	}
	return l.register(ctx, missing)
}
