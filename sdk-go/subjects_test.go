package carillon_test

import (
	"slices"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	const key = `{"subject":"a/b","timezone":"Asia/Tokyo","quiet_hours":{"from":"22:00","to":"07:00","then":"defer"},"version":2,"created_at":"2026-11-21T09:00:00Z","updated_at":"2026-11-21T09:00:00Z","updated_by":"app"}`
	s := &script{answers: []answer{
		{status: 200, body: key}, {status: 200, body: key}, {status: 200, body: `{"items":[` + key + `],"next_cursor":null}`},
		{status: 200, body: `{"subject":"c","schedules":2,"profile":true}`},
		{status: 200, body: `{"subject_hash":"ab","erased_at":"2026-11-21T09:00:00Z","erased_by":"app","counts":{"profiles":1,"schedules":2,"revisions":3,"ticks":4,"attempts":5,"answers":6}}`},
	}}
	c := s.client(t)
	k, err := c.Subjects.Put(t.Context(), "a/b", carillon.SubjectParams{Timezone: "Asia/Tokyo", QuietHours: carillon.QuietWindows{{From: "22:00", To: "07:00"}}, IfMatch: 1})
	if err != nil || k.Version != 2 || k.QuietHours[0].Then != "defer" {
		t.Errorf("got %+v, %v", k, err)
	}
	if k, err := c.Subjects.Get(t.Context(), "a/b"); err != nil || k.Timezone != "Asia/Tokyo" {
		t.Errorf("got %+v, %v", k, err)
	}
	for k, err := range c.Subjects.List(t.Context(), "a") {
		if err != nil || k.Subject != "a/b" {
			t.Errorf("got %+v, %v", k, err)
		}
	}
	if _, err := c.Subjects.Rename(t.Context(), "a/b", carillon.RenameParams{To: "c"}); err != nil {
		t.Error(err)
	}
	if e, err := c.Subjects.Erase(t.Context(), "c"); err != nil || e.Counts.Ticks != 4 {
		t.Errorf("got %+v, %v", e, err)
	}
	var got []string
	for _, r := range s.seen {
		got = append(got, r.Method+" "+r.URL.EscapedPath()+"?"+r.URL.RawQuery+" "+r.body)
	}
	want := []string{
		`PUT /base/v1/subjects/a%2Fb? {"timezone":"Asia/Tokyo","quiet_hours":[{"from":"22:00","to":"07:00"}]}`, "GET /base/v1/subjects/a%2Fb? ",
		"GET /base/v1/subjects?subject_prefix=a ", `POST /base/v1/subjects/a%2Fb/rename? {"to":"c"}`, "DELETE /base/v1/subjects/c? ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The profile of a key that many schedules follow is answered with the operation that retimes them.
func TestPutKeyReturnsItsOperation(t *testing.T) {
	t.Parallel()
	const profile = `{"subject":"k","timezone":"Asia/Tokyo","quiet_hours":null,"version":2,"created_at":"2026-11-21T09:00:00Z","updated_at":"2026-11-21T09:00:00Z","updated_by":"app"`
	const operation = `{"id":"op_1","kind":"retime_subject","state":"running","params":{"subject":"k"},"done":200,"total":1200,"counts":{"retimed":200},"result":null,"error":null,` +
		`"created_by":"app","created_at":"2026-11-21T09:00:00Z","started_at":"2026-11-21T09:00:01Z","ended_at":null}`
	s := &script{answers: []answer{{status: 202, body: profile + `,"operation":` + operation + `}`}, {status: 200, body: operation}, {status: 200, body: profile + `}`}}}
	c := s.client(t)
	k, err := c.Subjects.Put(t.Context(), "k", carillon.SubjectParams{Timezone: "Asia/Tokyo"})
	if err != nil || k.Version != 2 || k.Operation == nil || k.Operation.ID != "op_1" || *k.Operation.Total != 1200 {
		t.Fatalf("got %+v, %v", k, err)
	}
	op, err := c.Operations.Get(t.Context(), k.Operation.ID)
	if err != nil || op.State != "running" || op.Done != 200 || op.EndedAt != nil {
		t.Errorf("got %+v, %v", op, err)
	}
	if k, err := c.Subjects.Put(t.Context(), "k", carillon.SubjectParams{Timezone: "Asia/Tokyo"}); err != nil || k.Operation != nil {
		t.Errorf("got %+v, %v; want no operation", k, err)
	}
}
