package schedules_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

const syncPath = "/v1/schedules/sync?workflow=w"

// sync sends a body to be synced, and returns the answer's lines but the last, in short, and the last.
func (e *edge) sync(query, body string) (told []string, end bulk.SyncEnd) {
	e.t.Helper()
	a := e.ask("POST", syncPath+query, body, "Content-Type", "application/x-ndjson")
	if a.status != 200 {
		e.t.Fatalf("got %d %s", a.status, a.body)
	}
	for line := range strings.Lines(a.body) {
		var r bulk.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			e.t.Fatal(err)
		}
		if r.Line == 0 {
			if err := json.Unmarshal([]byte(line), &end); err != nil {
				e.t.Fatal(err)
			}
			continue
		}
		text := fmt.Sprintf("%d %s %s", r.Line, r.Result, r.Key)
		if r.Error != nil {
			text += " " + r.Error.Code
		}
		told = append(told, text)
	}
	return told, end
}

// stand is what is stored for acme: key, version and status of each schedule.
func (h *home) stand() string {
	h.t.Helper()
	return one[string](h, `SELECT COALESCE(string_agg(concat_ws(' ', workflow, key, version, status), ', ' ORDER BY workflow, key), '') FROM schedule WHERE tenant_id = $1`, h.acme)
}

func summary(inserted, updated, unchanged, duplicates, failed, reconciled int) bulk.SyncSummary {
	return bulk.SyncSummary{Summary: bulk.Summary{Inserted: inserted, Updated: updated, Unchanged: unchanged, Duplicates: duplicates, Errors: failed}, Reconciled: reconciled}
}

func TestSyncOverHTTP(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, key := range []string{"u1", "u2", "u3", "v1"} {
		e.put(key, spec(cron("0 12 * * *")))
	}
	for tenant, workflow := range map[tenants.ID]string{e.acme: "x", e.other: "w"} {
		if _, _, err := e.schedules.Put(e.as(tenant), policy.Name{Tenant: tenant, Workflow: workflow, Key: "u9"}, spec(cron("0 12 * * *")), "ann", version.Precondition{}); err != nil {
			t.Fatal(err)
		}
	}
	before := e.stand()
	body := `{"key":"u1","spec":{"cron":"0 12 * * *"}}` + "\n" + `{"key":"u2","spec":{"cron":"0 13 * * *"}}` + "\n" +
		`{"workflow":"w","key":"u4","spec":{"cron":"0 13 * * *"}}` + "\n" + `{"key":"u4","spec":{"cron":"0 14 * * *"}}` + "\n"
	want := []string{"1 unchanged u1", "2 updated u2", "3 duplicate u4", "4 inserted u4"}
	const query = "&key_prefix=u&unlisted=delete"
	told, end := e.sync(query+"&dry_run=true", body)
	if diff := cmp.Diff(want, told); diff != "" || end.Summary != summary(1, 1, 1, 1, 0, 1) || e.stand() != before {
		t.Errorf("a dry run: %s%+v\n%s", diff, end, e.stand())
	}
	if _, end := e.sync(query+"&dry_run=true&max_change=1", body); len(end.Warnings) != 1 || end.Warnings[0].Code != "too_many_changes" {
		t.Errorf("a dry run beyond the limit: %+v", end)
	}
	for _, limit := range []string{"1", "60%25", "66.6%25", "60%", "0"} {
		a := e.want(409, "too_many_changes", "POST", syncPath+query+"&max_change="+limit, body, "Content-Type", "application/x-ndjson")
		if fmt.Sprint(a.doc["stored"]) != "3" || fmt.Sprint(a.doc["summary"]) != "map[duplicates:1 errors:0 inserted:1 reconciled:1 unchanged:1 updated:1]" || e.stand() != before {
			t.Errorf("got %s\n%s", a.body, e.stand())
		}
	}
	told, end = e.sync(query+"&max_change=67%25", body)
	if diff := cmp.Diff(want, told); diff != "" || end.Summary != summary(1, 1, 1, 1, 0, 1) {
		t.Errorf("%s%+v", diff, end)
	}
	if got, want := e.stand(), "w u1 1 active, w u2 2 active, w u4 1 active, w v1 1 active, x u9 1 active"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if told, end = e.sync(query+"&max_change=0&results=errors", body); len(told) != 0 || end.Summary != summary(0, 0, 3, 1, 0, 0) {
		t.Errorf("again: %q %+v", told, end)
	}
	e.pause("u4", schedules.PauseParams{Note: new("on leave")})
	if _, end = e.sync("&unlisted=pause", `{"key":"u1","spec":{"cron":"0 12 * * *"}}`); end.Summary != summary(0, 0, 1, 0, 0, 2) {
		t.Errorf("got %+v", end)
	}
	if got, want := e.stand(), "w u1 1 active, w u2 3 paused, w u4 2 paused, w v1 2 paused, x u9 1 active"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, end = e.sync("&unlisted=keep", `{"spec":{"cron":"0 12 * * *"}}`); end.Summary != summary(1, 0, 0, 0, 0, 0) {
		t.Errorf("got %+v", end)
	}
	if _, end = e.sync("&unlisted=delete", ""); end.Summary != summary(0, 0, 0, 0, 0, 5) || e.stand() != "x u9 1 active" {
		t.Errorf("an empty set: got %+v %s", end, e.stand())
	}
	if page, _, err := e.schedules.List(e.theirs(), e.other, schedules.Filter{}, 10, ""); err != nil || len(page) != 1 || page[0].Version != 1 {
		t.Errorf("the other tenant has %+v, %v", page, err)
	}
	if got := one[int](e.home, `SELECT (SELECT count(*) FROM sync) + (SELECT count(*) FROM sync_line)`); got != 0 {
		t.Errorf("%d rows are left behind", got)
	}
}

// A bad line means that what is listed is not known, and so what is not listed is left alone.
func TestSyncWithABadLineTouchesNothingUnlisted(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	e.put("a1", spec(cron("0 12 * * *")))
	e.put("b1", spec(cron("0 12 * * *")))
	for _, bad := range []string{
		"{nonsense", `{"key":"b1","spec":{"cron":"0 12 * * *"}}`, `{"workflow":"v","key":"a2","spec":{"cron":"0 12 * * *"}}`, `{"key":"a2","spec":{"cron":"0 0 30 2 *"}}`,
	} {
		told, end := e.sync("&key_prefix=a&unlisted=delete", bad)
		if len(told) != 1 || end.Summary != summary(0, 0, 0, 0, 1, 0) || len(end.Warnings) != 1 || end.Warnings[0].Code != "unlisted_untouched" {
			t.Errorf("%s: %q %+v", bad, told, end)
		}
	}
	if got := e.stand(); got != "w a1 1 active, w b1 1 active" {
		t.Errorf("got %s", got)
	}
	told, _ := e.sync("&key_prefix=a", `{"workflow":"v","key":"b2","spec":{"cron":"0 12 * * *"}}`)
	if diff := cmp.Diff([]string{"1 error b2 invalid"}, told); diff != "" {
		t.Error(diff)
	}
}

func TestSyncRefusesWhatIsNotAsked(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for query, code := range map[string]string{
		"": "invalid", "?workflow=": "invalid", "?workflow=w&unlisted=burn": "invalid", "?workflow=w&dry_run=perhaps": "invalid", "?workflow=w&results=some": "invalid",
		"?workflow=w&max_change=x": "invalid", "?workflow=w&max_change=-1": "invalid", "?workflow=w&max_change=101%25": "invalid", "?workflow=w&max_change=NaN%25": "invalid", "?workflow=w&key_prefix=": "invalid",
	} {
		e.want(422, code, "POST", "/v1/schedules/sync"+query, "{}", "Content-Type", "application/x-ndjson")
	}
	e.want(415, "unsupported_media_type", "POST", syncPath, "{}")
	e.want(400, "unknown_parameter", "POST", syncPath+"&colour=red", "{}", "Content-Type", "application/x-ndjson")
	e.want(403, "insufficient_scope", "POST", syncPath, "{}", "Content-Type", "application/x-ndjson", "Authorization", "Bearer "+e.token("acme", tenants.SchedulesRead))
}

// cut is a body whose connection breaks.
type cut struct{ io.Reader }

var errCut = errors.New("the connection broke")

func (c cut) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errCut
	}
	return n, err
}

func (cut) Close() error { return nil }

func (h *home) syncs(p bulk.SyncParams, body io.ReadCloser) (results []bulk.Result, sum bulk.SyncSummary, err error) {
	h.t.Helper()
	sum, _, err = h.inBulk.Sync(h.t.Context(), h.acme, "ann", p, body, func(batch []bulk.Result) error {
		results = append(results, batch...)
		return nil
	})
	return results, sum, err
}

func TestSyncOfACutBodyChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(cron("0 12 * * *")))
	p := bulk.SyncParams{Workflow: "w", Unlisted: "delete"}
	if _, _, err := h.syncs(p, cut{strings.NewReader(dailyLine("b"))}); !errors.Is(err, errCut) {
		t.Fatalf("got %v", err)
	}
	if got := h.stand(); got != "w a 1 active" {
		t.Errorf("got %s", got)
	}
}

// atEnd is a body that calls a function when it is read to its end.
type atEnd struct {
	io.Reader
	call func()
}

func (a atEnd) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		a.call()
	}
	return n, err
}

func (atEnd) Close() error { return nil }

// loseSyncs makes the database forget all syncs, as a crash does.
func (h *home) loseSyncs() { h.exec(`TRUNCATE sync, sync_line RESTART IDENTITY`) }

func TestSyncWhoseStagingIsLostChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(cron("0 12 * * *")))
	for _, body := range []string{"", strings.Repeat(dailyLine("b")+dailyLine("c"), 600)} {
		_, _, err := h.syncs(bulk.SyncParams{Workflow: "w", Unlisted: "delete"}, atEnd{strings.NewReader(body), h.loseSyncs})
		faulty(t, err, 503, "unavailable")
	}
	if got := h.stand(); got != "w a 1 active" {
		t.Errorf("got %s", got)
	}
}

// After a crash of the database another sync of the tenant gets the same number: neither takes the lines of the other for its own.
func TestSyncWhoseNumberIsAnothersChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("a", spec(cron("0 12 * * *")))
	p := bulk.SyncParams{Workflow: "w", Unlisted: "delete"}
	lost, begun, goOn := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		var body strings.Builder
		for i := range 1200 {
			body.WriteString(dailyLine(fmt.Sprint("b", i)))
		}
		_, _, err := h.syncs(p, atEnd{strings.NewReader(body.String()), func() { close(begun); <-goOn }})
		lost <- err
	}()
	<-begun
	h.loseSyncs()
	results, sum, err := h.syncs(p, atEnd{strings.NewReader(dailyLine("c")), func() {
		if n := one[int](h, `SELECT max(id)::int FROM sync`); n != 1 {
			t.Errorf("the second sync has number %d", n)
		}
		close(goOn)
		faulty(t, <-lost, 503, "unavailable")
		if got := h.stand(); got != "w a 1 active" {
			t.Errorf("got %s", got)
		}
	}})
	if err != nil || len(results) != 1 || sum != summary(1, 0, 0, 0, 0, 1) {
		t.Errorf("the second sync: got %+v %+v %v", results, sum, err)
	}
	if got := h.stand(); got != "w c 1 active" {
		t.Errorf("got %s", got)
	}
}

func TestSyncOfManyBatches(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	var first, second strings.Builder
	for i := range 2300 {
		first.WriteString(dailyLine(fmt.Sprint("k", i)))
		if i%2 == 0 {
			second.WriteString(dailyLine(fmt.Sprint("k", i)))
		}
	}
	second.WriteString(dailyLine("k0") + dailyLine("new"))
	h.upsertBulk(first.String())
	results, sum, err := h.syncs(bulk.SyncParams{Workflow: "w", Unlisted: "delete", MaxChange: new(limit(t, "50%"))}, io.NopCloser(strings.NewReader(second.String())))
	if err != nil || sum != summary(1, 0, 1150, 1, 0, 1150) || len(results) != 1152 {
		t.Fatalf("got %+v %v", sum, err)
	}
	for i, r := range results {
		if r.Line != i+1 {
			t.Fatalf("line %d is answered in place of %d", r.Line, i+1)
		}
	}
	if got := one[string](h, `SELECT concat_ws(' ', count(*), max(version), (SELECT count(*) FROM member), (SELECT count(*) FROM schedule_state), (SELECT count(*) FROM revision WHERE deleted)) FROM schedule`); got != "1151 1 1151 1151 1150" {
		t.Errorf("got %s", got)
	}
	if _, err := bulk.ClearSyncs(t.Context(), h.pool, 100_000); err != nil {
		t.Fatal(err)
	}
	if got := one[int](h, `SELECT (SELECT count(*) FROM sync) + (SELECT count(*) FROM sync_line)`); got != 0 {
		t.Errorf("%d rows are left behind", got)
	}
}

func limit(t *testing.T, s string) bulk.ChangeLimit {
	t.Helper()
	l, err := bulk.ParseChangeLimit(s)
	if err != nil {
		t.Fatal(err)
	}
	return *l
}

// A sync comes to what its dry run tells, and stores what a bulk upsert of its lines and the deletion of the rest do.
func TestSyncIsBulkAndTheRest(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := fmt.Sprint("w", run)
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			h.disturb(rt, w)
			lines := rapid.SliceOfNDistinct(drawLine(w), 0, 4, func(l bulk.Line) string { return *l.Key }).Draw(rt, "lines")
			p := bulk.SyncParams{Workflow: w, Unlisted: rapid.SampledFrom([]string{"keep", "delete", "pause"}).Draw(rt, "unlisted"), DryRun: true}
			body := ndjson(t, lines...)
			planned, plan, err := h.syncs(p, io.NopCloser(strings.NewReader(body)))
			if err != nil {
				rt.Fatal(err)
			}
			p.DryRun = false
			done, sum, err := h.syncs(p, io.NopCloser(strings.NewReader(body)))
			if err != nil || sum != plan || len(done) != len(planned) {
				rt.Fatalf("planned %+v, done %+v, %v", plan, sum, err)
			}
			h.putEach(rt, lines)
			h.dropUnlisted(rt, p, lines, sum.Errors > 0)
			if diff := cmp.Diff(h.picture(h.other, w), h.picture(h.acme, w)); diff != "" {
				rt.Fatalf("stored (-puts +sync):\n%s", diff)
			}
		}
	})
}

// dropUnlisted does to the other tenant's schedules what a sync does to those that are not listed.
func (h *home) dropUnlisted(rt *rapid.T, p bulk.SyncParams, lines []bulk.Line, bad bool) {
	if bad || p.Unlisted == "keep" {
		return
	}
	page, _, err := h.schedules.List(h.theirs(), h.other, schedules.Filter{Workflow: p.Workflow}, 100, "")
	if err != nil {
		rt.Fatal(err)
	}
	listed := map[string]bool{}
	for _, l := range lines {
		listed[*l.Key] = true
	}
	for _, s := range page {
		by := schedules.Changer{By: "ann"}
		switch {
		case listed[s.Key]:
		case p.Unlisted == "delete":
			err = h.schedules.Delete(h.theirs(), h.other, p.Workflow, s.Key, by)
		case s.Status == "active" || s.PausedUntil != nil:
			_, _, err = h.schedules.Pause(h.theirs(), h.other, p.Workflow, s.Key, schedules.PauseParams{}, by)
		}
		if err != nil {
			rt.Fatal(err)
		}
	}
}
