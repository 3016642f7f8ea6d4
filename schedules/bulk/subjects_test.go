package bulk_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

const (
	subjectsBulk = "/v1/subjects/bulk"
	ndjson       = "application/x-ndjson"
)

// putSubjects sends lines, and returns the result of each and the summary.
func putSubjects(e *schedulestest.Site, query, lines string) (results []bulk.SubjectResult, sum bulk.Summary) {
	e.T.Helper()
	a := e.Ask("POST", subjectsBulk+query, lines, "Content-Type", ndjson)
	if a.Status != 200 {
		e.T.Fatalf("got %d %s", a.Status, a.Body)
	}
	answered := strings.Split(strings.TrimSpace(a.Body), "\n")
	for _, line := range answered[:len(answered)-1] {
		var r bulk.SubjectResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			e.T.Fatalf("%v in %s", err, line)
		}
		results = append(results, r)
	}
	var end bulk.End
	if err := json.Unmarshal([]byte(answered[len(answered)-1]), &end); err != nil {
		e.T.Fatalf("%v in %s", err, a.Body)
	}
	return results, end.Summary
}

func TestProfilesAreStoredInBulk(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Want(201, "", "PUT", "/v1/subjects/old", `{"timezone":"UTC"}`)
	e.Want(201, "", "PUT", "/v1/subjects/same", `{"timezone":"UTC","labels":{"a":"b"}}`)
	e.Want(201, "", "PUT", "/v1/workflows/w/schedules/k", `{"subject":"old","spec":{"timezone":"@subject","cron":"0 8 * * *"}}`)
	before := e.Want(200, "", "GET", "/v1/workflows/w/schedules/k", "")
	lines := strings.Join([]string{
		`{"subject":"new","timezone":"Asia/Tokyo","quiet_hours":{"from":"22:00","to":"07:00"}}`,
		`{"subject":"old","timezone":"Asia/Tokyo"}`,
		`{"subject":"same","timezone":"UTC","labels":{"a":"b"}}`,
		`{"subject":"twice","timezone":"UTC"}`,
		``,
		`{"subject":"twice","timezone":"Europe/Berlin"}`,
		`{"subject":"bad","timezone":"Nowhere"}`,
		`{"subject":"","timezone":"UTC"}`,
		`{"subject":"bad","timezone":"UTC","zone":1}`,
		`{"subject":`,
	}, "\n")
	results, sum := putSubjects(e, "", lines)
	want := []string{"1 inserted new", "2 updated old", "3 unchanged same", "4 duplicate twice", "6 inserted twice", "7 error bad unknown_timezone", "8 error  invalid", "9 error  unknown_field", "10 error  invalid_json"}
	for i, r := range results {
		got := fmt.Sprintf("%d %s %s", r.Line, r.Result, r.Subject)
		if r.Error != nil {
			got += " " + r.Error.Code
		}
		if i >= len(want) || got != want[i] {
			t.Errorf("line %d: got %q, want %q", i, got, want[min(i, len(want)-1)])
		}
	}
	if wantSum := (bulk.Summary{Inserted: 2, Updated: 1, Unchanged: 1, Duplicates: 1, Errors: 4}); sum != wantSum || len(results) != len(want) {
		t.Errorf("got %+v, want %+v", sum, wantSum)
	}
	if got := e.Want(200, "", "GET", "/v1/subjects/twice", ""); got.Doc["timezone"] != "Europe/Berlin" {
		t.Errorf("got %s", got.Body)
	}
	if after := e.Want(200, "", "GET", "/v1/workflows/w/schedules/k", ""); after.Doc["next_at"] == before.Doc["next_at"] || after.Doc["timezone_in_force"] != "Asia/Tokyo" {
		t.Errorf("the follower was not retimed: %s", after.Body)
	}
	if only, _ := putSubjects(e, "?results=errors", lines); len(only) != 4 {
		t.Errorf("got %+v", only)
	}
	export := e.Want(200, "", "GET", "/v1/subjects/export", "")
	if _, sum := putSubjects(e, "", export.Body); sum != (bulk.Summary{Unchanged: 4}) {
		t.Errorf("an export is stored as %+v: %s", sum, export.Body)
	}
	if theirs := e.Want(200, "", "GET", "/v1/subjects/export", "", "Authorization", "Bearer "+e.Token("other", tenants.SchedulesRead)); strings.TrimSpace(theirs.Body) != "" {
		t.Errorf("another tenant exports %s", theirs.Body)
	}
}

func TestManyProfilesAreExported(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	e.Quotas.Subjects = 1200
	var lines strings.Builder
	const n = 1300
	for i := range n {
		fmt.Fprintf(&lines, `{"subject":"s%04d","timezone":"UTC"}`+"\n", i)
	}
	results, sum := putSubjects(e, "", lines.String())
	if sum != (bulk.Summary{Inserted: 1200, Errors: 100}) || results[n-1].Error == nil || results[n-1].Error.Code != "quota_exceeded" {
		t.Errorf("got %+v and %+v", sum, results[n-1])
	}
	if got := strings.Count(e.Want(200, "", "GET", "/v1/subjects/export", "").Body, "\n"); got != 1200 {
		t.Errorf("%d lines are exported, want 1200", got)
	}
}

func TestBulkOfProfilesRefuses(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	const line = `{"subject":"a","timezone":"UTC"}`
	e.Want(415, "unsupported_media_type", "POST", subjectsBulk, line)
	e.Want(422, "invalid", "POST", subjectsBulk+"?results=some", line, "Content-Type", ndjson)
	e.Want(400, "unknown_parameter", "POST", subjectsBulk+"?x=1", line, "Content-Type", ndjson)
	e.Want(400, "unknown_parameter", "GET", "/v1/subjects/export?x=1", "")
	e.Want(403, "insufficient_scope", "POST", subjectsBulk, line, "Content-Type", ndjson, "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesRead))
	e.Want(403, "insufficient_scope", "GET", "/v1/subjects/export", "", "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesWrite))
}
