package finish_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
)

// Index entries of slots and of ticks that waited for one cannot be removed while an old snapshot is open. A transaction that counts
// slots, grants them or looks for waiting ticks does not read them again.
func TestLimitsDoNotReadEarlierSlotsUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	d, r := h.Recording()
	h.Start(d)
	h.Catcher("few", 1, nil)
	h.Limit("few", new("few"), new(int32(2)))
	h.OldSnapshot()
	fired := 0
	fire := func(rounds int) {
		t.Helper()
		for range rounds {
			h.Fire("few", 20, 2)
			fired += 20
			dispatchtest.Until(t, "all ticks have succeeded", func() bool {
				return h.Number(`SELECT count(*) FROM tick WHERE state = 2 AND tenant_id = $1`, h.Tenant) == fired && h.Number(`SELECT count(*) FROM slot`) == 0
			})
		}
	}
	words := []string{"FROM slot WHERE tenant_id = $1 AND workflow = w.name", "WITH first AS MATERIALIZED", "FROM queued WHERE tenant_id = $1 AND workflow = p.name"}
	fire(3)
	before := h.Entries(r, words...)
	fire(15)
	dispatchtest.Grown(t, before, h.Entries(r, words...))
	if err := d.Stop(t.Context()); err != nil { // what it runs from now on would be recorded over the changes
		t.Fatal(err)
	}
	for i, word := range words {
		r.FromLowEnd(word, []int{2, 6, 3}[i])
	}
	for sql, n := range h.Entries(r, words...) {
		if n < 200 {
			t.Errorf("%d index entries read from the low end, so that the test shows nothing:\n%s", n, sql)
		}
	}
}

// Two processes count the slots of a workflow exactly, whatever was taken and freed, committed or rolled back.
func TestSlotsAreCountedExactly(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	processes := []*finish.Finisher{h.Dispatch.Finisher, h.Process().Finisher}
	at := time.Now().UTC().Truncate(time.Second)
	rolledBack := errors.New("rolled back")
	workflow, next := 0, int64(0)
	rapid.Check(t, func(t *rapid.T) {
		workflow++
		name, limit := fmt.Sprint("w", workflow), rapid.SampledFrom([]int32{2, 400}).Draw(t, "limit")
		h.Limit(name, nil, &limit)
		held := map[int64]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "transactions") {
			f := processes[rapid.IntRange(0, 1).Draw(t, "process")]
			stays := maps.Clone(held)
			var dropped record.Keys
			ctx := postgres.ForTenant(h.T.Context(), int32(h.Tenant))
			commits := rapid.IntRange(0, 3).Draw(t, "outcome") > 0
			err := pgx.BeginFunc(ctx, h.Pool, func(tx pgx.Tx) error {
				for _, id := range slices.Sorted(maps.Keys(held)) {
					if rapid.IntRange(0, 2).Draw(t, "drop") == 0 {
						dropped.Add(ident.TickKey{Schedule: id, At: at}, 1)
						delete(stays, id)
					}
				}
				if _, err := finish.DropSlots(ctx, tx, h.Tenant, dropped); err != nil {
					return err
				}
				free, err := f.LockLimits(ctx, tx, h.Tenant, []string{name})
				if err != nil {
					return err
				}
				if want := int(limit) - len(stays); free[name] != want {
					t.Errorf("%d slots are free, want %d", free[name], want)
				}
				var taken record.Keys
				var of []string
				for range rapid.IntRange(0, min(free[name], 150)).Draw(t, "take") {
					next++
					taken.Add(ident.TickKey{Schedule: next, At: at}, 1)
					stays[next] = true
					of = append(of, name)
				}
				if err := finish.InsertSlots(ctx, tx, h.Tenant, taken, of); err != nil {
					return err
				}
				if !commits {
					return rolledBack
				}
				return nil
			})
			switch {
			case err == nil:
				held = stays
			case !errors.Is(err, rolledBack):
				t.Fatal(err)
			}
		}
	})
}
