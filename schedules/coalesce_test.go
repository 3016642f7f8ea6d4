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
)

// What puts that are stored together are answered, and what they store, is what each of them is answered by itself, for
// another tenant.
func TestPutsTogetherAreManyPuts(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := fmt.Sprint("w", run)
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			h.disturb(rt, w)
			lines := rapid.SliceOfNDistinct(drawLine(w), 1, 4, func(l bulk.Line) string { return *l.Key }).Draw(rt, "lines")
			puts := make([]schedules.GroupPut, len(lines))
			for i, l := range lines {
				puts[i] = schedules.GroupPut{Workflow: l.Workflow, Key: *l.Key, Params: l.Params, Pre: rapid.SampledFrom([]version.Precondition{
					{}, {}, {}, {},
					{IfNoneMatch: version.Any()},
					{IfMatch: version.Any()},
					{IfMatch: version.Of(1)},
				}).Draw(rt, "pre")}
			}
			h.takeHanded()
			together, err := h.schedules.PutTogether(t.Context(), h.acme, "ann", puts)
			if err != nil {
				rt.Fatal(err)
			}
			handed := h.handedKeys()
			for i, p := range puts {
				s, made, err := h.schedules.Put(h.theirs(), policy.Name{Tenant: h.other, Workflow: w, Key: p.Key}, p.Params, "ann", p.Pre)
				want, got := answered(t, s, made, err), answered(t, together[i].Schedule, together[i].Made, together[i].Err)
				if diff := cmp.Diff(want, got); diff != "" {
					rt.Fatalf("%s (-alone +together):\n%s", p.Key, diff)
				}
			}
			if diff := cmp.Diff(h.handedKeys(), handed); diff != "" {
				rt.Fatalf("handed out (-alone +together):\n%s", diff)
			}
			if diff := cmp.Diff(h.picture(h.other, w), h.picture(h.acme, w)); diff != "" {
				rt.Fatalf("stored (-alone +together):\n%s", diff)
			}
		}
	})
}

// answered is what a put is answered, but for what tells two tenants or two moments apart.
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
	h := newHome(t)
	const clients, each = 16, 20
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				p := spec(cron("0 12 * * *"))
				key := fmt.Sprint("own", c, "-", i)
				if i%4 == 0 {
					key, p.Payload = "shared", web.Raw(fmt.Sprintf(`{"n":%d}`, c*each+i))
				}
				if i%5 == 4 {
					p.Spec = cron("0 0 30 2 *")
				}
				s, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: key}, p, "ann", version.Precondition{})
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
	puts, made := one[int](h, `SELECT count(*) FROM schedule`), one[int](h, `SELECT count(DISTINCT xmin::text) FROM schedule`)
	if want := clients*each - clients*(each/5+each/4-each/20) + 1; puts != want {
		t.Errorf("got %d schedules, want %d", puts, want)
	}
	if made > puts/2 {
		t.Errorf("%d schedules were stored in %d transactions", puts, made)
	}
	if n := one[int](h, `SELECT max(version) - count(DISTINCT version) FROM (SELECT version FROM revision WHERE key = 'shared' UNION SELECT version FROM schedule WHERE key = 'shared') v`); n != 0 {
		t.Errorf("%d versions of the shared one are missing", n)
	}
}

// One who does not wait any more leaves the others alone; a group that cannot be stored is stored one by one.
func TestAPutInAGroupSuffersFromNoOther(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	broken := h.put("broken", spec(cron("0 12 * * *")))
	h.exec(`UPDATE workflow SET defaults = '{"policy": {"overlap": 7}}' WHERE name = 'w'`) // so that nothing of w can be shown
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				cancel()
			}
			w := []string{"w", "v"}[i%2]
			_, _, err := h.schedules.Put(ctx, policy.Name{Tenant: h.acme, Workflow: w, Key: fmt.Sprint(i)}, spec(cron("30 12 * * *")), "ann", version.Precondition{})
			if ok := err == nil; ok != (w == "v" && i%3 != 0) {
				t.Errorf("%d of %s: got %v", i, w, err)
			}
		})
	}
	wg.Wait()
	if n := one[int](h, `SELECT count(*) FROM schedule WHERE workflow = 'v'`); n < 4 || broken.ID == "" {
		t.Errorf("got %d schedules", n)
	}
}
