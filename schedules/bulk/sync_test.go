package bulk_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

func summary(inserted, updated, unchanged, duplicates, failed, reconciled int) bulk.SyncSummary {
	return bulk.SyncSummary{Summary: bulk.Summary{Inserted: inserted, Updated: updated, Unchanged: unchanged, Duplicates: duplicates, Errors: failed}, Reconciled: reconciled}
}

func TestSyncOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for _, key := range []string{"u1", "u2", "u3", "v1"} {
		e.Put(key, schedulestest.ByCron("0 12 * * *"))
	}
	for tenant, workflow := range map[tenants.ID]string{e.Acme: "x", e.Other: "w"} {
		if _, _, err := e.Schedules.Put(e.As(tenant), policy.Name{Tenant: tenant, Workflow: workflow, Key: "u9"}, schedulestest.ByCron("0 12 * * *"), "ann", version.Precondition{}); err != nil {
			t.Fatal(err)
		}
	}
	before := e.Stored()
	body := `{"key":"u1","spec":{"cron":"0 12 * * *"}}` + "\n" + `{"key":"u2","spec":{"cron":"0 13 * * *"}}` + "\n" +
		`{"workflow":"w","key":"u4","spec":{"cron":"0 13 * * *"}}` + "\n" + `{"key":"u4","spec":{"cron":"0 14 * * *"}}` + "\n"
	want := []string{"1 unchanged u1", "2 updated u2", "3 duplicate u4", "4 inserted u4"}
	const query = "&key_prefix=u&unlisted=delete"
	told, end := e.Sync(query+"&dry_run=true", body)
	if diff := cmp.Diff(want, told); diff != "" || end.Summary != summary(1, 1, 1, 1, 0, 1) || e.Stored() != before {
		t.Errorf("a dry run: %s%+v\n%s", diff, end, e.Stored())
	}
	if _, end := e.Sync(query+"&dry_run=true&max_change=1", body); len(end.Warnings) != 1 || end.Warnings[0].Code != "too_many_changes" {
		t.Errorf("a dry run beyond the limit: %+v", end)
	}
	for _, limit := range []string{"1", "60%25", "66.6%25", "60%", "0"} {
		a := e.Want(409, "too_many_changes", "POST", schedulestest.SyncPath+query+"&max_change="+limit, body, "Content-Type", "application/x-ndjson")
		if fmt.Sprint(a.Doc["stored"]) != "3" || fmt.Sprint(a.Doc["summary"]) != "map[duplicates:1 errors:0 inserted:1 reconciled:1 resumed:0 unchanged:1 updated:1]" || e.Stored() != before {
			t.Errorf("got %s\n%s", a.Body, e.Stored())
		}
	}
	told, end = e.Sync(query+"&max_change=67%25", body)
	if diff := cmp.Diff(want, told); diff != "" || end.Summary != summary(1, 1, 1, 1, 0, 1) {
		t.Errorf("%s%+v", diff, end)
	}
	if got, want := e.Stored(), "w u1 1 active, w u2 2 active, w u4 1 active, w v1 1 active, x u9 1 active"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if told, end = e.Sync(query+"&max_change=0&results=errors", body); len(told) != 0 || end.Summary != summary(0, 0, 3, 1, 0, 0) {
		t.Errorf("again: %q %+v", told, end)
	}
	e.Pause("u4", schedules.PauseParams{Note: new("on leave")})
	if _, end = e.Sync("&unlisted=pause", `{"key":"u1","spec":{"cron":"0 12 * * *"}}`); end.Summary != summary(0, 0, 1, 0, 0, 2) {
		t.Errorf("got %+v", end)
	}
	if got, want := e.Stored(), "w u1 1 active, w u2 3 paused, w u4 2 paused, w v1 2 paused, x u9 1 active"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, end = e.Sync("&unlisted=keep", `{"spec":{"cron":"0 12 * * *"}}`); end.Summary != summary(1, 0, 0, 0, 0, 0) {
		t.Errorf("got %+v", end)
	}
	if _, end = e.Sync("&unlisted=delete", ""); end.Summary != summary(0, 0, 0, 0, 0, 5) || e.Stored() != "x u9 1 active" {
		t.Errorf("an empty set: got %+v %s", end, e.Stored())
	}
	if page, _, err := e.Schedules.List(e.Theirs(), e.Other, schedules.Filter{}, 10, ""); err != nil || len(page) != 1 || page[0].Version != 1 {
		t.Errorf("the other tenant has %+v, %v", page, err)
	}
	if got := schedulestest.One[int](e.Fixture, `SELECT (SELECT count(*) FROM sync) + (SELECT count(*) FROM sync_line)`); got != 0 {
		t.Errorf("%d rows are left behind", got)
	}
}

// After a bad line the sync does not know all listed schedules, so it leaves the unlisted ones alone.
func TestSyncWithABadLineTouchesNothingUnlisted(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Put("a1", schedulestest.ByCron("0 12 * * *"))
	e.Put("b1", schedulestest.ByCron("0 12 * * *"))
	for _, bad := range []string{
		"{nonsense", `{"key":"b1","spec":{"cron":"0 12 * * *"}}`, `{"workflow":"v","key":"a2","spec":{"cron":"0 12 * * *"}}`, `{"key":"a2","spec":{"cron":"0 0 30 2 *"}}`,
	} {
		told, end := e.Sync("&key_prefix=a&unlisted=delete", bad)
		if len(told) != 1 || end.Summary != summary(0, 0, 0, 0, 1, 0) || len(end.Warnings) != 1 || end.Warnings[0].Code != "unlisted_untouched" {
			t.Errorf("%s: %q %+v", bad, told, end)
		}
	}
	if got := e.Stored(); got != "w a1 1 active, w b1 1 active" {
		t.Errorf("got %s", got)
	}
	told, _ := e.Sync("&key_prefix=a", `{"workflow":"v","key":"b2","spec":{"cron":"0 12 * * *"}}`)
	if diff := cmp.Diff([]string{"1 error b2 invalid"}, told); diff != "" {
		t.Error(diff)
	}
}

func TestSyncRefusesWhatIsNotAsked(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for query, code := range map[string]string{
		"": "invalid", "?workflow=": "invalid", "?label=": "invalid", "?label=x": "invalid", "?label=a%20b:c": "invalid", "?label=a:b&workflow=w": "invalid", "?label=a:b&key_prefix=u": "invalid", "?workflow=w&unlisted=burn": "invalid", "?workflow=w&dry_run=perhaps": "invalid", "?workflow=w&results=some": "invalid",
		"?workflow=w&max_change=x": "invalid", "?workflow=w&max_change=-1": "invalid", "?workflow=w&max_change=101%25": "invalid", "?workflow=w&max_change=NaN%25": "invalid", "?workflow=w&key_prefix=": "invalid",
	} {
		e.Want(422, code, "POST", "/v1/schedules/sync"+query, "{}", "Content-Type", "application/x-ndjson")
	}
	e.Want(415, "unsupported_media_type", "POST", schedulestest.SyncPath, "{}")
	e.Want(400, "unknown_parameter", "POST", schedulestest.SyncPath+"&colour=red", "{}", "Content-Type", "application/x-ndjson")
	e.Want(403, "insufficient_scope", "POST", schedulestest.SyncPath, "{}", "Content-Type", "application/x-ndjson", "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesRead))
}

// keyed returns the schedules that are stored, each with its status and the mark of who paused it.
func keyed(e *schedulestest.Fixture) string {
	e.T.Helper()
	return schedulestest.One[string](e, `
		SELECT COALESCE(string_agg(concat_ws(' ', workflow, key, status, paused_by), ', ' ORDER BY workflow, key), '')
		FROM schedule
		WHERE tenant_id = $1`, e.Acme)
}

func TestASyncResumesWhatASyncPaused(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for _, key := range []string{"active", "byhand", "later", "until"} {
		e.Put(key, schedulestest.ByCron("0 12 * * *"))
	}
	e.Pause("byhand", schedules.PauseParams{})
	e.Pause("until", schedules.PauseParams{Until: new(time.Now().Add(time.Hour))})
	const list = "&unlisted=pause"
	all := schedulestest.DailyLine("active") + schedulestest.DailyLine("byhand") + schedulestest.DailyLine("later") + schedulestest.DailyLine("until")
	if _, end := e.Sync(list, schedulestest.DailyLine("none")); end.Summary.Reconciled != 3 || end.Summary.Resumed != 0 {
		t.Errorf("got %+v", end)
	}
	if got, want := keyed(e.Fixture), "w active paused sync, w byhand paused, w later paused sync, w none active, w until paused"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if s := e.Get("active"); s.PausedBy == nil || *s.PausedBy != "sync" {
		t.Errorf("it shows %v", s.PausedBy)
	}
	if s := e.Get("byhand"); s.PausedBy != nil {
		t.Errorf("one that was paused by hand shows %s", *s.PausedBy)
	}
	e.Put("active", schedulestest.ByCron("0 12 * * *")) // a put without a status leaves it as it is
	e.Pause("later", schedules.PauseParams{})           // by hand now
	want := []string{"1 updated active", "2 unchanged byhand", "3 unchanged later", "4 unchanged until", "5 unchanged none"}
	for _, dry := range []string{"&dry_run=true", ""} {
		told, end := e.Sync(list+dry, all+schedulestest.DailyLine("none"))
		sum := summary(0, 1, 4, 0, 0, 0)
		sum.Resumed = 1
		if diff := cmp.Diff(want, told); diff != "" || end.Summary != sum {
			t.Errorf("%q: %s%+v", dry, diff, end)
		}
	}
	if got, want := keyed(e.Fixture), "w active active, w byhand paused, w later paused, w none active, w until paused"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if s := e.Get("active"); s.PausedBy != nil || s.NextAt == nil {
		t.Errorf("resumed: got %v, next at %v", s.PausedBy, s.NextAt)
	}
}

// A line, a put or an action that states the pause of a schedule makes it one by hand.
func TestAPauseThatIsStatedOutlivesASync(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	for _, key := range []string{"acted", "listed", "put"} {
		e.Put(key, schedulestest.ByCron("0 12 * * *"))
	}
	if _, end := e.Sync("&unlisted=pause", ""); end.Summary.Reconciled != 3 {
		t.Fatalf("got %+v", end)
	}
	e.RunAction("pause", schedules.ActionFilter{KeyPrefix: "acted"})
	p := schedulestest.ByCron("0 12 * * *")
	p.Status = policy.Paused
	e.Put("put", p)
	listed := `{"key":"listed","spec":{"cron":"0 12 * * *"},"status":"paused"}` + "\n"
	for _, body := range []string{listed, schedulestest.DailyLine("listed") + schedulestest.DailyLine("acted") + schedulestest.DailyLine("put")} {
		if _, end := e.Sync("&unlisted=keep", body); end.Summary.Resumed != 0 {
			t.Errorf("got %+v", end)
		}
	}
	if got, want := keyed(e.Fixture), "w acted paused, w listed paused, w put paused"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A schedule that a sync paused and whose last time has passed stays paused when it is listed again. Its line is not bad.
func TestASyncDoesNotResumeWhatFiresNoMore(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	line := fmt.Sprintf(`{"key":"once","spec":{"at":[%q]}}`, time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05Z")) + "\n"
	e.Sync("", line)
	if _, end := e.Sync("&unlisted=pause", ""); end.Summary.Reconciled != 1 {
		t.Fatalf("got %+v", end)
	}
	past := time.Now().Add(-time.Hour).UTC().Format("2006-01-02T15:04:05Z")
	e.Exec(`UPDATE schedule SET spec = regexp_replace(spec, '"at":\["[^"]*"\]', '"at":["'||$1||'"]')`, past)
	if told, end := e.Sync("&unlisted=pause", fmt.Sprintf(`{"key":"once","spec":{"at":[%q]}}`, past)); told[0] != "1 unchanged once" || end.Summary.Resumed != 0 {
		t.Errorf("got %q %+v", told, end)
	}
	if got := keyed(e.Fixture); got != "w once paused sync" {
		t.Errorf("got %s", got)
	}
}

// A sync of a label is about the schedules of all workflows that have the label, and about no others.
func TestASyncOfALabel(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	line := func(workflow, key, labels string) string {
		return fmt.Sprintf(`{"workflow":%q,"key":%q,"spec":{"cron":"0 12 * * *"},"labels":{%s}}`, workflow, key, labels) + "\n"
	}
	const ours, theirs = `"source":"crm:eu"`, `"source":"web"`
	e.Want(200, "", "POST", schedulestest.BulkPath, line("a", "1", ours)+line("a", "2", ours)+line("a", "3", theirs)+line("b", "1", ours)+line("b", "2", theirs)+line("b", "4", ""), "Content-Type", "application/x-ndjson")
	sync := func(query, body string) schedulestest.Answer {
		return e.Want(200, "", "POST", "/v1/schedules/sync?label=source:crm:eu"+query, body, "Content-Type", "application/x-ndjson")
	}
	a := sync("", line("a", "1", theirs)+line("a", "9", "")+`{"key":"1","spec":{"cron":"0 12 * * *"},"labels":{`+ours+`}}`)
	for _, want := range []string{`"pointer":"/labels/source","code":"out_of_scope"`, `"pointer":"/labels","code":"out_of_scope"`, `"pointer":"/workflow"`, `"errors":3`} {
		if !strings.Contains(a.Body, want) {
			t.Errorf("%s is not in %s", want, a.Body)
		}
	}
	e.Want(409, "too_many_changes", "POST", "/v1/schedules/sync?label=source:crm:eu&unlisted=pause&max_change=66%25", line("b", "2", ours), "Content-Type", "application/x-ndjson")
	listed := line("a", "1", ours) + line("b", "2", ours) + line("c", "1", ours)
	a = sync("&unlisted=pause", listed)
	if want := `{"summary":{"inserted":1,"updated":1,"unchanged":1,"duplicates":0,"errors":0,"reconciled":2,"resumed":0},"warnings":[]}`; !strings.Contains(a.Body, want) {
		t.Errorf("got %s", a.Body)
	}
	if got, want := keyed(e.Fixture), "a 1 active, a 2 paused sync, a 3 active, b 1 paused sync, b 2 active, b 4 active, c 1 active"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if a = sync("&unlisted=delete", listed+line("b", "1", ours)); !strings.Contains(a.Body, `"reconciled":1,"resumed":1`) {
		t.Errorf("got %s", a.Body)
	}
	if got, want := keyed(e.Fixture), "a 1 active, a 3 active, b 1 active, b 2 active, b 4 active, c 1 active"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
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

func TestSyncOfACutBodyChangesNothing(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.Put("a", schedulestest.ByCron("0 12 * * *"))
	p := bulk.SyncParams{Workflow: "w", Unlisted: "delete"}
	if _, _, err := h.SyncBulk(p, cut{strings.NewReader(schedulestest.DailyLine("b"))}); !errors.Is(err, errCut) {
		t.Fatalf("got %v", err)
	}
	if got := h.Stored(); got != "w a 1 active" {
		t.Errorf("got %s", got)
	}
}

func TestSyncOfManyBatches(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	var first, second strings.Builder
	for i := range 2300 {
		first.WriteString(schedulestest.DailyLine(fmt.Sprint("k", i)))
		if i%2 == 0 {
			second.WriteString(schedulestest.DailyLine(fmt.Sprint("k", i)))
		}
	}
	second.WriteString(schedulestest.DailyLine("k0") + schedulestest.DailyLine("new"))
	h.UpsertBulk(first.String())
	results, sum, err := h.SyncBulk(bulk.SyncParams{Workflow: "w", Unlisted: "delete", MaxChange: new(limit(t, "50%"))}, io.NopCloser(strings.NewReader(second.String())))
	if err != nil || sum != summary(1, 0, 1150, 1, 0, 1150) || len(results) != 1152 {
		t.Fatalf("got %+v %v", sum, err)
	}
	for i, r := range results {
		if r.Line != i+1 {
			t.Fatalf("line %d is answered in place of %d", r.Line, i+1)
		}
	}
	if got := schedulestest.One[string](h, `SELECT concat_ws(' ', count(*), max(version), (SELECT count(*) FROM member), (SELECT count(*) FROM schedule_state), (SELECT count(*) FROM revision WHERE deleted)) FROM schedule`); got != "1151 1 1151 1151 1150" {
		t.Errorf("got %s", got)
	}
	if _, err := bulk.ClearSyncs(t.Context(), h.Pool, 100_000); err != nil {
		t.Fatal(err)
	}
	if got := schedulestest.One[int](h, `SELECT (SELECT count(*) FROM sync) + (SELECT count(*) FROM sync_line)`); got != 0 {
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

// A sync has the results of its dry run. It stores the same as a bulk upsert of its lines and a deletion of the other schedules.
func TestSyncIsBulkAndTheRest(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := fmt.Sprint("w", run)
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			h.ChangeBetween(rt, w)
			lines := rapid.SliceOfNDistinct(schedulestest.DrawLine(w), 0, 4, func(l bulk.Line) string { return *l.Key }).Draw(rt, "lines")
			p := bulk.SyncParams{Workflow: w, Unlisted: rapid.SampledFrom([]string{"keep", "delete", "pause"}).Draw(rt, "unlisted"), DryRun: true}
			body := schedulestest.NDJSON(t, lines...)
			planned, plan, err := h.SyncBulk(p, io.NopCloser(strings.NewReader(body)))
			if err != nil {
				rt.Fatal(err)
			}
			p.DryRun = false
			done, sum, err := h.SyncBulk(p, io.NopCloser(strings.NewReader(body)))
			if err != nil || sum != plan || len(done) != len(planned) {
				rt.Fatalf("planned %+v, done %+v, %v", plan, sum, err)
			}
			h.PutEach(rt, resumed(h, w, lines))
			dropUnlisted(h, rt, p, lines, sum.Errors > 0)
			if diff := cmp.Diff(h.Dump(h.Other, w), h.Dump(h.Acme, w)); diff != "" {
				rt.Fatalf("stored (-puts +sync):\n%s", diff)
			}
		}
	})
}

// resumed returns the lines as puts of the other tenant: one that a sync paused, and whose line states no status, is put as active.
func resumed(h *schedulestest.Fixture, w string, lines []bulk.Line) (puts []bulk.Line) {
	paused := schedulestest.One[[]string](h, `SELECT COALESCE(array_agg(key), '{}') FROM schedule WHERE tenant_id = $1 AND workflow = '`+w+`' AND paused_by IS NOT NULL`, h.Other)
	for _, l := range lines {
		if l.Status == "" && slices.Contains(paused, *l.Key) {
			l.Status = policy.Active
		}
		puts = append(puts, l)
	}
	return puts
}

// dropUnlisted changes the other tenant's schedules as a sync changes those that are not listed.
func dropUnlisted(h *schedulestest.Fixture, rt *rapid.T, p bulk.SyncParams, lines []bulk.Line, bad bool) {
	if bad || p.Unlisted == "keep" {
		return
	}
	page, _, err := h.Schedules.List(h.Theirs(), h.Other, schedules.Filter{Workflow: p.Workflow}, 100, "")
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
			err = h.Schedules.Delete(h.Theirs(), h.Other, p.Workflow, s.Key, by)
		case s.Status == "active" || s.PausedUntil != nil:
			_, _, err = h.Schedules.Pause(h.Theirs(), h.Other, p.Workflow, s.Key, schedules.PauseParams{}, by)
			if s.Status == "active" {
				h.Exec(`UPDATE schedule SET paused_by = 'sync' WHERE tenant_id = $1 AND workflow = $2 AND key = $3`, h.Other, p.Workflow, s.Key)
			}
		}
		if err != nil {
			rt.Fatal(err)
		}
	}
}

// With claim=free, a sync never takes a schedule from another value of its label, and says whose it is.
func TestASyncThatClaimsOnlyFreeSchedules(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	line := func(key, labels string) string {
		return fmt.Sprintf(`{"workflow":"w","key":%q,"spec":{"cron":"0 12 * * *"},"labels":{%s}}`, key, labels) + "\n"
	}
	e.Want(200, "", "POST", schedulestest.BulkPath, line("theirs", `"program":"b"`)+line("free", `"plan":"pro"`)+line("ours", `"program":"a"`), "Content-Type", "application/x-ndjson")
	before := keyed(e.Fixture)
	const path = "/v1/schedules/sync?label=program:a&unlisted=delete&claim=free"
	listed := line("theirs", `"program":"a"`) + line("free", `"program":"a"`)
	a := e.Want(200, "", "POST", path, listed, "Content-Type", "application/x-ndjson")
	for _, want := range []string{`"code":"claimed"`, "program:b", `"key":"free","schedule_id"`, `"errors":1`, `"unlisted_untouched"`} {
		if !strings.Contains(a.Body, want) {
			t.Errorf("%s is not in %s", want, a.Body)
		}
	}
	if got := keyed(e.Fixture); got != before {
		t.Errorf("got %s, want %s", got, before)
	}
	if a := e.Want(200, "", "POST", "/v1/schedules/sync?label=program:b&unlisted=delete&claim=free&dry_run=true", line("theirs", `"program":"b"`), "Content-Type", "application/x-ndjson"); !strings.Contains(a.Body, `"unchanged":1`) {
		t.Errorf("the schedule of another program was changed: %s", a.Body)
	}
	e.Want(422, "invalid", "POST", "/v1/schedules/sync?workflow=w&claim=free", "", "Content-Type", "application/x-ndjson")
	e.Want(422, "invalid", "POST", "/v1/schedules/sync?label=program:a&claim=some", "", "Content-Type", "application/x-ndjson")
}
