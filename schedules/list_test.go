package schedules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
)

// pages reads a list to its end and returns workflow/key of each.
func (h *home) pages(t interface{ Fatal(...any) }, f schedules.Filter, limit int) []string {
	h.t.Helper()
	all, cursor := []string{}, ""
	for {
		page, next, err := h.schedules.List(h.t.Context(), h.acme, f, limit, cursor)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > limit || next != nil && len(page) < limit {
			t.Fatal("a page of ", len(page), " with limit ", limit)
		}
		for _, s := range page {
			all = append(all, s.Workflow+"/"+s.Key)
		}
		if next == nil {
			return all
		}
		cursor = *next
	}
}

func TestPagesAreTheWhole(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	keys := []string{
		"a", "a/b", "ab", "b", "B", "é", "e\u0301", "z", "zz", "日本", "日", "日本語", "\U0010FFFF", "\U0010FFFF\U0010FFFF", "\uD7FF", "\uD7FFx", "\uE000",
		"%", "_", "a%", "a_", "'", `\`, " ", "ÿ", "\u07ff", "\u0800", "\uFFFF", "\U00010000",
	}
	var all []string
	for i, key := range keys {
		for _, workflow := range []string{"w", "W2"}[:1+i%2] {
			if _, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: workflow, Key: key}, spec(cron(fmt.Sprint(i%7, " 12 * * *"))), "ann", version.Precondition{}); err != nil {
				t.Fatal(err)
			}
			all = append(all, workflow+"/"+key)
			if i%3 == 0 {
				if _, _, err := h.schedules.Pause(t.Context(), h.acme, workflow, key, schedules.PauseParams{}, schedules.Changer{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { // workflow first, then key, byte for byte
		return strings.Compare(strings.Replace(a, "/", "\x00", 1), strings.Replace(b, "/", "\x00", 1))
	})
	if diff := cmp.Diff(all, h.pages(t, schedules.Filter{}, 1000)); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	rapid.Check(t, func(rt *rapid.T) {
		f := schedules.Filter{
			Workflow:  rapid.SampledFrom([]string{"", "w", "W2", "none"}).Draw(rt, "workflow"),
			Status:    rapid.SampledFrom([]string{"", policy.Active, policy.Paused, policy.Completed}).Draw(rt, "status"),
			KeyPrefix: rapid.OneOf(rapid.Just(""), rapid.SampledFrom(keys), rapid.SampledFrom([]string{"日本", "a", "\uD7FF", "none"})).Draw(rt, "prefix"),
		}
		want := []string{}
		for _, name := range all {
			workflow, key, _ := strings.Cut(name, "/")
			paused := slices.Index(keys, key)%3 == 0
			if (f.Workflow == "" || workflow == f.Workflow) && strings.HasPrefix(key, f.KeyPrefix) &&
				(f.Status == "" || paused && f.Status == policy.Paused || !paused && f.Status == policy.Active) {
				want = append(want, name)
			}
		}
		if diff := cmp.Diff(want, h.pages(rt, f, rapid.IntRange(1, 60).Draw(rt, "limit"))); diff != "" {
			rt.Fatalf("%+v: want -, got +:\n%s", f, diff)
		}
	})
}

func TestACursorIsBoundToTenantAndFilter(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	for _, key := range []string{"a", "b", "c"} {
		h.put(key, spec(cron("0 12 * * *")))
	}
	f := schedules.Filter{Workflow: "w", Status: policy.Active}
	_, next, err := h.schedules.List(t.Context(), h.acme, f, 1, "")
	if err != nil || next == nil {
		t.Fatal(next, err)
	}
	if page, _, err := h.schedules.List(t.Context(), h.acme, f, 5, *next); err != nil || len(page) != 2 || page[0].Key != "b" {
		t.Errorf("got %v %v", page, err)
	}
	_, _, err = h.schedules.List(h.theirs(), h.other, f, 5, *next)
	faulty(t, err, 422, "invalid_cursor")
	for _, other := range []schedules.Filter{{}, {Workflow: "w"}, {Workflow: "wactive"}, {Workflow: "w", Status: policy.Active, KeyPrefix: "a"}} {
		_, _, err = h.schedules.List(t.Context(), h.acme, other, 5, *next)
		faulty(t, err, 422, "invalid_cursor")
	}
	_, _, err = h.schedules.Workflows(t.Context(), h.acme, 5, *next)
	faulty(t, err, 422, "invalid_cursor")
	_, _, err = h.schedules.List(t.Context(), h.acme, f, 5, "rubbish")
	faulty(t, err, 422, "invalid_cursor")
}

func TestAListRefusesWhatItCannotFilterBy(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	_, _, err := h.schedules.List(t.Context(), h.acme, schedules.Filter{Workflow: "a b", Status: "odd", KeyPrefix: strings.Repeat("x", 257)}, 5, "")
	if f := faulty(t, err, 422, "invalid"); len(f.Fields) != 3 {
		t.Errorf("got %v", f.Fields)
	}
}

// BenchmarkList reads a page of 100 schedules whose timings all differ, and writes it as JSON.
func BenchmarkList(b *testing.B) {
	h := newHome(b)
	for i := range 100 {
		p := spec(cron(fmt.Sprint(i%60, " ", i/60, " * * *")))
		p.Spec.Timezone = "America/New_York"
		p.Payload, p.Labels = web.Raw(fmt.Sprintf(`{"user": %d, "template": "daily-digest"}`, i)), map[string]string{"plan": fmt.Sprint(i)}
		h.put(fmt.Sprint(i), p)
	}
	for b.Loop() {
		page, next, err := h.schedules.List(b.Context(), h.acme, schedules.Filter{}, 100, "")
		if err != nil || len(page) != 100 {
			b.Fatal(len(page), err)
		}
		if _, err := web.Marshal(web.ListAnswer[schedules.Schedule]{Items: page, NextCursor: next}); err != nil {
			b.Fatal(err)
		}
	}
}
