package schedules_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// Puts in one transaction have the same results as single puts for another tenant, and store the same.
func TestPutsTogetherAreManyPuts(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := fmt.Sprint("w", run)
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			h.ChangeBetween(rt, w)
			lines := rapid.SliceOfNDistinct(schedulestest.DrawLine(w), 1, 4, func(l bulk.Line) string { return *l.Key }).Draw(rt, "lines")
			puts := make([]schedules.GroupPut, len(lines))
			for i, l := range lines {
				puts[i] = schedules.GroupPut{Workflow: l.Workflow, Key: *l.Key, Params: l.Params, Pre: rapid.SampledFrom([]version.Precondition{
					{}, {}, {}, {},
					{IfNoneMatch: version.Any()},
					{IfMatch: version.Any()},
					{IfMatch: version.Of(1)},
				}).Draw(rt, "pre")}
			}
			h.TakeHanded()
			together, err := h.Schedules.PutTogether(t.Context(), h.Acme, "ann", puts)
			if err != nil {
				rt.Fatal(err)
			}
			handed := h.HandedKeys()
			for i, p := range puts {
				s, made, err := h.Schedules.Put(h.Theirs(), policy.Name{Tenant: h.Other, Workflow: w, Key: p.Key}, p.Params, "ann", p.Pre)
				want, got := answered(t, s, made, err), answered(t, together[i].Schedule, together[i].Made, together[i].Err)
				if diff := cmp.Diff(want, got); diff != "" {
					rt.Fatalf("%s (-alone +together):\n%s", p.Key, diff)
				}
			}
			if diff := cmp.Diff(h.HandedKeys(), handed); diff != "" {
				rt.Fatalf("handed out (-alone +together):\n%s", diff)
			}
			if diff := cmp.Diff(h.Dump(h.Other, w), h.Dump(h.Acme, w)); diff != "" {
				rt.Fatalf("stored (-alone +together):\n%s", diff)
			}
		}
	})
}

// answered returns the result of a put without ids and times, which differ between two tenants.
func answered(t *testing.T, s schedules.Schedule, made bool, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	if s.ID == "" || s.CreatedAt.IsZero() || s.UpdatedAt.IsZero() {
		t.Errorf("got %+v", s)
	}
	changed := !s.UpdatedAt.Equal(s.CreatedAt)
	s.ID, s.CreatedAt, s.UpdatedAt = "", s.CreatedAt.UTC().Truncate(0), s.UpdatedAt.UTC()
	text, jsonErr := web.Marshal(s)
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "created_at")
	delete(members, "updated_at")
	text, _ = json.Marshal(members)
	return fmt.Sprint(made, changed, string(text))
}

func TestPutsAtOnceAreStoredTogether(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	const clients, each = 16, 20
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				p := schedulestest.ByCron("0 12 * * *")
				key := fmt.Sprint("own", c, "-", i)
				if i%4 == 0 {
					key, p.Payload = "shared", web.Raw(fmt.Sprintf(`{"n":%d}`, c*each+i))
				}
				if i%5 == 4 {
					p.Spec = schedulestest.Cron("0 0 30 2 *")
				}
				s, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: key}, p, "ann", version.Precondition{})
				switch {
				case i%5 == 4:
					if f, ok := err.(*fault.Error); !ok || f.Code != "never_fires" {
						t.Errorf("got %v of a spec that never fires", err)
					}
				case err != nil:
					t.Error(err)
				case s.Key != key || s.NextAt == nil || p.Payload != nil && string(s.Payload) != string(p.Payload):
					t.Errorf("got %+v of %s", s, key)
				}
			}
		})
	}
	wg.Wait()
	puts, made := schedulestest.One[int](h, `SELECT count(*) FROM schedule`), schedulestest.One[int](h, `SELECT count(DISTINCT xmin::text) FROM schedule`)
	if want := clients*each - clients*(each/5+each/4-each/20) + 1; puts != want {
		t.Errorf("got %d schedules, want %d", puts, want)
	}
	if made > puts/2 {
		t.Errorf("%d schedules were stored in %d transactions", puts, made)
	}
	if n := schedulestest.One[int](h, `SELECT max(version) - count(DISTINCT version) FROM (SELECT version FROM revision WHERE key = 'shared' UNION SELECT version FROM schedule WHERE key = 'shared') v`); n != 0 {
		t.Errorf("%d versions of the shared one are missing", n)
	}
}

// A caller that no longer waits does not disturb the others. If a group cannot be stored, its puts are stored one by one.
func TestAPutInAGroupSuffersFromNoOther(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	broken := h.Put("broken", schedulestest.ByCron("0 12 * * *"))
	h.Exec(`UPDATE workflow SET defaults = '{"policy": {"overlap": 7}}' WHERE name = 'w'`) // so that nothing of w can be shown
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				cancel()
			}
			w := []string{"w", "v"}[i%2]
			_, _, err := h.Schedules.Put(ctx, policy.Name{Tenant: h.Acme, Workflow: w, Key: fmt.Sprint(i)}, schedulestest.ByCron("30 12 * * *"), "ann", version.Precondition{})
			gone := i%3 == 0 // it is stored all the same if it was already in a group when it left
			if ok := err == nil; ok && w == "w" || !ok && w == "v" && !gone {
				t.Errorf("%d of %s: got %v", i, w, err)
			}
			var stored bool
			if e := h.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM schedule WHERE workflow = $1 AND key = $2)`, w, fmt.Sprint(i)).Scan(&stored); e != nil || stored != (err == nil) {
				t.Errorf("%d of %s is stored: %t, %v; its put: %v", i, w, stored, e, err)
			}
		})
	}
	wg.Wait()
	if n := schedulestest.One[int](h, `SELECT count(*) FROM schedule WHERE workflow = 'v'`); n < 4 || broken.ID == "" {
		t.Errorf("got %d schedules", n)
	}
}
