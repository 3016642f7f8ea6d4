package schedules_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

func TestAListByLabelFollowsEveryChange(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	labelled := func(labels map[string]string) schedules.Params {
		p := schedulestest.ByCron("0 12 * * *")
		p.Labels = labels
		return p
	}
	for i := range 7 {
		h.Put(fmt.Sprint(i), labelled(map[string]string{"plan": []string{"pro", "free"}[i%2], "at": "a:b"}))
	}
	h.Put("none", labelled(nil))
	check := func(label string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), pages(h, t, schedules.Filter{Label: label}, 2)); diff != "" {
			t.Errorf("%s: want -, got +:\n%s", label, diff)
		}
	}
	check("plan:pro", "w/0", "w/2", "w/4", "w/6")
	check("at:a:b", "w/0", "w/1", "w/2", "w/3", "w/4", "w/5", "w/6")
	check("plan:p")
	h.Put("0", labelled(map[string]string{"plan": "free"}))
	h.Put("2", labelled(nil))
	h.Put("none", labelled(map[string]string{"plan": "pro"}))
	h.Delete("4")
	h.Pause("6", schedules.PauseParams{})
	check("plan:pro", "w/6", "w/none")
	check("plan:free", "w/0", "w/1", "w/3", "w/5")
	if got := pages(h, t, schedules.Filter{Workflow: "w", Label: "plan:pro", Status: policy.Paused}, 10); len(got) != 1 || got[0] != "w/6" {
		t.Errorf("got %v", got)
	}
}

// Half of the timings come from a time when the tenant had few schedules, and half from now, when it has many. A list holds both, in one order.
func TestAListInDueOrder(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	start := time.Now().UTC().Add(24 * time.Hour).Truncate(time.Hour)
	var want []string
	for i := range 12 {
		at := start.Add(time.Duration(i/3) * time.Hour)
		p := schedulestest.ByCron(fmt.Sprintf("0 %d %d %d *", at.Hour(), at.Day(), at.Month()))
		h.Exec(`
			INSERT INTO tally (tenant_id, cohort_id, n) SELECT id, 0, $1 FROM tenant
			ON CONFLICT (tenant_id, cohort_id) DO UPDATE SET n = excluded.n`, i/3%2*1_000_000)
		h.Put(fmt.Sprint(i), p)
		if i < 9 {
			want = append(want, fmt.Sprint("w/", i))
		}
	}
	// A tenant with many schedules uses several shards, and a timing has a cohort in each of them.
	const timings = `SELECT count(DISTINCT hash) FROM cohort WHERE ordered = $1`
	if few, many := schedulestest.One[int](h, timings, false), schedulestest.One[int](h, timings, true); few != 2 || many != 2 {
		t.Errorf("%d timings are made as of few, and %d as of many", few, many)
	}
	f := schedules.Filter{DueBefore: start.Add(3 * time.Hour)}
	for _, limit := range []int{1, 2, 5, 100} {
		got := pages(h, t, f, limit)
		for i := range 3 { // those of one time come in an order of their own
			part := got[min(len(got), i*3):min(len(got), i*3+3)]
			for _, name := range want[i*3 : i*3+3] {
				if !strings.Contains(strings.Join(part, " ")+" ", name+" ") {
					t.Errorf("limit %d: got %v, want %v", limit, got, want)
				}
			}
		}
		if len(got) != len(want) {
			t.Errorf("limit %d: got %v, want %v", limit, got, want)
		}
	}
	h.Pause("4", schedules.PauseParams{})
	if got := pages(h, t, f, 100); len(got) != 8 {
		t.Errorf("with one paused: got %v", got)
	}
	f.Workflow = "other"
	if got := pages(h, t, f, 100); len(got) != 0 {
		t.Errorf("of another workflow: got %v", got)
	}
}

// pages reads a list to its end and returns workflow/key of each.
func pages(h *schedulestest.Fixture, t interface{ Fatal(...any) }, f schedules.Filter, limit int) []string {
	h.T.Helper()
	all, cursor := []string{}, ""
	for {
		page, next, err := h.Schedules.List(h.T.Context(), h.Acme, f, limit, cursor)
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
	h := schedulestest.New(t)
	keys := []string{
		"a", "a/b", "ab", "b", "B", "é", "e\u0301", "z", "zz", "日本", "日", "日本語", "\U0010FFFF", "\U0010FFFF\U0010FFFF", "\uD7FF", "\uD7FFx", "\uE000",
		"%", "_", "a%", "a_", "'", `\`, " ", "ÿ", "\u07ff", "\u0800", "\uFFFF", "\U00010000",
	}
	var all []string
	for i, key := range keys {
		for _, workflow := range []string{"w", "W2"}[:1+i%2] {
			if _, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: workflow, Key: key}, schedulestest.ByCron(fmt.Sprint(i%7, " 12 * * *")), "ann", version.Precondition{}); err != nil {
				t.Fatal(err)
			}
			all = append(all, workflow+"/"+key)
			if i%3 == 0 {
				if _, _, err := h.Schedules.Pause(t.Context(), h.Acme, workflow, key, schedules.PauseParams{}, schedules.Changer{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int { // workflow first, then key, byte for byte
		return strings.Compare(strings.Replace(a, "/", "\x00", 1), strings.Replace(b, "/", "\x00", 1))
	})
	if diff := cmp.Diff(all, pages(h, t, schedules.Filter{}, 1000)); diff != "" {
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
		if diff := cmp.Diff(want, pages(h, rt, f, rapid.IntRange(1, 60).Draw(rt, "limit"))); diff != "" {
			rt.Fatalf("%+v: want -, got +:\n%s", f, diff)
		}
	})
}

func TestACursorIsBoundToTenantAndFilter(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	for _, key := range []string{"a", "b", "c"} {
		h.Put(key, schedulestest.ByCron("0 12 * * *"))
	}
	f := schedules.Filter{Workflow: "w", Status: policy.Active}
	_, next, err := h.Schedules.List(t.Context(), h.Acme, f, 1, "")
	if err != nil || next == nil {
		t.Fatal(next, err)
	}
	if page, _, err := h.Schedules.List(t.Context(), h.Acme, f, 5, *next); err != nil || len(page) != 2 || page[0].Key != "b" {
		t.Errorf("got %v %v", page, err)
	}
	_, _, err = h.Schedules.List(h.Theirs(), h.Other, f, 5, *next)
	schedulestest.WantFault(t, err, 422, "invalid_cursor")
	for _, other := range []schedules.Filter{{}, {Workflow: "w"}, {Workflow: "wactive"}, {Workflow: "w", Status: policy.Active, KeyPrefix: "a"}} {
		_, _, err = h.Schedules.List(t.Context(), h.Acme, other, 5, *next)
		schedulestest.WantFault(t, err, 422, "invalid_cursor")
	}
	_, _, err = h.Schedules.Workflows(t.Context(), h.Acme, 5, *next)
	schedulestest.WantFault(t, err, 422, "invalid_cursor")
	_, _, err = h.Schedules.List(t.Context(), h.Acme, f, 5, "rubbish")
	schedulestest.WantFault(t, err, 422, "invalid_cursor")
}

func TestAListRefusesWhatItCannotFilterBy(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	_, _, err := h.Schedules.List(t.Context(), h.Acme, schedules.Filter{Workflow: "a b", Status: "odd", KeyPrefix: strings.Repeat("x", 257)}, 5, "")
	if f := schedulestest.WantFault(t, err, 422, "invalid"); len(f.Fields) != 3 {
		t.Errorf("got %v", f.Fields)
	}
}

// BenchmarkList reads a page of 100 schedules whose timings all differ, and writes it as JSON.
func BenchmarkList(b *testing.B) {
	h := schedulestest.New(b)
	for i := range 100 {
		p := schedulestest.ByCron(fmt.Sprint(i%60, " ", i/60, " * * *"))
		p.Spec.Timezone = "America/New_York"
		p.Payload, p.Labels = web.Raw(fmt.Sprintf(`{"user": %d, "template": "daily-digest"}`, i)), map[string]string{"plan": fmt.Sprint(i)}
		h.Put(fmt.Sprint(i), p)
	}
	for b.Loop() {
		page, next, err := h.Schedules.List(b.Context(), h.Acme, schedules.Filter{}, 100, "")
		if err != nil || len(page) != 100 {
			b.Fatal(len(page), err)
		}
		if _, err := web.Marshal(web.ListAnswer[schedules.Schedule]{Items: page, NextCursor: next}); err != nil {
			b.Fatal(err)
		}
	}
}

// heavy stores schedules that together have more bytes than one page may have.
func heavy(h *schedulestest.Fixture, n int) (keys []string) {
	h.T.Helper()
	var lines strings.Builder
	payload := strings.Repeat("x", 60_000)
	for i := range n {
		keys = append(keys, fmt.Sprintf("k%03d", i))
		fmt.Fprintf(&lines, `{"workflow": "w", "key": %q, "spec": {"cron": "0 12 * * *"}, "payload": %q}`+"\n", keys[i], payload)
	}
	if _, err := h.InBulk.Upsert(h.T.Context(), h.Acme, "ann", io.NopCloser(strings.NewReader(lines.String())), func([]bulk.Result) error { return nil }); err != nil {
		h.T.Fatal(err)
	}
	return keys
}

// A page ends before it has too many bytes. The next page continues there, so no schedule is missing.
func TestAPageEndsBeforeItHoldsTooMuch(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	keys := heavy(h, 200)
	var got []string
	pages, cursor := 0, ""
	for {
		page, next, err := h.Schedules.List(t.Context(), h.Acme, schedules.Filter{}, 1000, cursor)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, one := range page {
			got, bytes = append(got, one.Key), bytes+len(one.Payload)
		}
		if pages++; bytes > web.MostPage {
			t.Errorf("page %d holds %d bytes", pages, bytes)
		}
		if next == nil {
			break
		}
		cursor = *next
	}
	if !slices.Equal(got, keys) || pages < 2 {
		t.Errorf("%d schedules on %d pages, of %d", len(got), pages, len(keys))
	}

	exported := 0
	err := h.Schedules.Export(t.Context(), h.Acme, schedules.Filter{}, func(lines [][]byte) error {
		exported += len(lines)
		return nil
	})
	if err != nil || exported != len(keys) {
		t.Errorf("%d schedules were exported, of %d: %v", exported, len(keys), err)
	}
}
