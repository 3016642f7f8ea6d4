package schedules_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// A subject without a profile has the zone of its workflow, else that of its tenant. A profile made later comes before both.
func TestASubjectWithoutAProfileHasAFallbackZone(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	following := schedulestest.FollowingSubject("0 8 * * *")
	operateAll := func() {
		t.Helper()
		for _, n := range schedulestest.One[[]int64](h, `SELECT COALESCE(array_agg(id ORDER BY id), '{}') FROM operation WHERE kind = 'fallback_timezone' AND ended_at IS NULL`) {
			if err := h.Schedules.Operations.Run(t.Context(), n); err != nil {
				t.Fatal(err)
			}
		}
	}
	put := func(workflow string) (schedules.Schedule, error) {
		out, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: workflow, Key: "k"}, following, "ann", version.Precondition{})
		return out, err
	}
	patch := func(body string) schedules.Settings {
		t.Helper()
		out, err := h.Schedules.PatchSettings(t.Context(), h.Acme, []byte(body), version.Precondition{})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	fallBackOf := func(workflow, zone string) {
		t.Helper()
		_, _, err := h.Schedules.PutWorkflow(t.Context(), h.Acme, workflow, schedules.WorkflowParams{Fallback: new(zone)})
		if err != nil {
			t.Fatal(err)
		}
	}
	zones := func(want map[string]string) {
		t.Helper()
		for workflow, zone := range want {
			got, err := h.Schedules.Get(t.Context(), h.Acme, workflow, "k")
			if err != nil {
				t.Fatal(err)
			}
			if got.TimezoneInForce != zone || !got.NextAt.Equal(h.NextOf(zone, "0 8 * * *")) {
				t.Errorf("%s: got %s at %v, want %s", workflow, got.TimezoneInForce, got.NextAt, zone)
			}
		}
	}
	refused := func(workflow string) {
		t.Helper()
		_, err := put(workflow)
		schedulestest.WantFault(t, err, http.StatusUnprocessableEntity, "no_subject_zone")
	}

	refused("a")
	if got := patch(`{"fallback_timezone": "Asia/Tokyo"}`); got.Operation == nil || *got.FallbackTimezone != "Asia/Tokyo" {
		t.Errorf("got %+v", got)
	} else if op := h.Operate(got.Operation.ID); op.State != operations.Succeeded || op.Done != 0 {
		t.Errorf("got %+v", op)
	}
	for _, workflow := range []string{"a", "b"} {
		if _, err := put(workflow); err != nil {
			t.Fatal(err)
		}
	}
	zones(map[string]string{"a": "Asia/Tokyo", "b": "Asia/Tokyo"})
	fallBackOf("a", "America/New_York")
	operateAll()
	zones(map[string]string{"a": "America/New_York", "b": "Asia/Tokyo"})

	// The workflow's zone comes first, whatever the tenant's is.
	h.Operate(patch(`{"fallback_timezone": "Europe/Berlin"}`).Operation.ID)
	zones(map[string]string{"a": "America/New_York", "b": "Europe/Berlin"})
	fallBackOf("a", "Australia/Sydney")
	operateAll()
	zones(map[string]string{"a": "Australia/Sydney", "b": "Europe/Berlin"})
	if err := h.Schedules.DeleteWorkflow(t.Context(), h.Acme, "a", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	operateAll()
	zones(map[string]string{"a": "Europe/Berlin", "b": "Europe/Berlin"})

	// Without any zone they keep the one that they have, and a new one is refused.
	if got := patch(`{"fallback_timezone": null}`); got.Operation != nil || got.FallbackTimezone != nil {
		t.Errorf("got %+v", got)
	}
	zones(map[string]string{"a": "Europe/Berlin", "b": "Europe/Berlin"})
	refused("c")

	h.PutSubject("k", subjects.SubjectParams{Timezone: "Africa/Cairo"})
	zones(map[string]string{"a": "Africa/Cairo", "b": "Africa/Cairo"})
	h.Operate(patch(`{"fallback_timezone": "Asia/Tokyo"}`).Operation.ID)
	zones(map[string]string{"a": "Africa/Cairo", "b": "Africa/Cairo"})
}

// The operation passes all schedules of a tenant, in steps, and leaves those alone that need no fallback zone.
func TestAFallbackZoneRetimesTheSchedulesThatNeedIt(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	patch := func(zone string) string {
		t.Helper()
		out, err := h.Schedules.PatchSettings(t.Context(), h.Acme, fmt.Appendf(nil, `{"fallback_timezone": %q}`, zone), version.Precondition{})
		if err != nil {
			t.Fatal(err)
		}
		return out.Operation.ID
	}
	patch("Asia/Tokyo")
	const followers = 601
	for i := range followers {
		h.Put(fmt.Sprint("f", i), schedulestest.FollowingSubject("0 8 * * *"))
	}
	h.PutSubject("of-a-profile", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	h.Put("of-a-profile", schedulestest.FollowingSubject("0 8 * * *"))
	h.Put("plain", schedulestest.ByCron("0 8 * * *"))
	op := h.Operate(patch("Europe/Berlin"))
	if op.State != operations.Succeeded || op.Done != followers || op.Counts["retimed"] != followers {
		t.Errorf("got %+v", op)
	}
	if n := schedulestest.One[int](h, `SELECT count(*)::int FROM schedule_state WHERE rezoned_at IS NOT NULL`); n != followers {
		t.Errorf("%d schedules were moved to another zone", n)
	}
	if got := h.Get("of-a-profile"); got.TimezoneInForce != "Asia/Tokyo" {
		t.Errorf("a schedule with a profile has the zone %s", got.TimezoneInForce)
	}
}

// A schedule that is put while the zone changes, and that has read the zone before, is retimed too.
func TestSchedulesPutBesideAChangeOfTheFallbackZoneFollowIt(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	patch := func(zone string) string {
		t.Helper()
		out, err := h.Schedules.PatchSettings(t.Context(), h.Acme, fmt.Appendf(nil, `{"fallback_timezone": %q}`, zone), version.Precondition{})
		if err != nil {
			t.Fatal(err)
		}
		return out.Operation.ID
	}
	patch("Asia/Tokyo")
	var puts errgroup.Group
	puts.SetLimit(8)
	started := make(chan struct{})
	for i := range 200 {
		puts.Go(func() error {
			if i == 20 {
				close(started)
			}
			_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: fmt.Sprint(i)}, schedulestest.FollowingSubject("0 8 * * *"), "ann", version.Precondition{})
			return err
		})
		if i == 50 {
			<-started
			h.Operate(patch("Europe/Berlin"))
		}
	}
	if err := puts.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if got := h.Get(fmt.Sprint(i)); got.TimezoneInForce != "Europe/Berlin" {
			t.Errorf("schedule %d has the zone %s", i, got.TimezoneInForce)
		}
	}
}

func TestSettingsOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	const path = "/v1/admin/settings"
	none := e.Want(200, "", "GET", path, "")
	if zone, there := none.Doc["fallback_timezone"]; !there || zone != nil {
		t.Errorf("got %s", none.Body)
	}
	set := e.Want(202, "", "PATCH", path, `{"fallback_timezone": "Europe/Berlin"}`, "If-Match", none.Header.Get("ETag"))
	if set.Doc["fallback_timezone"] != "Europe/Berlin" || set.Doc["operation"].(map[string]any)["kind"] != "fallback_timezone" {
		t.Errorf("got %s", set.Body)
	}
	e.Want(412, "version_mismatch", "PATCH", path, `{"fallback_timezone": null}`, "If-Match", none.Header.Get("ETag"))
	e.Want(200, "", "PATCH", path, `{}`, "If-Match", set.Header.Get("ETag"))
	e.Want(400, "unknown_field", "PATCH", path, `{"zone": "UTC"}`)
	e.Want(422, "unknown_timezone", "PATCH", path, `{"fallback_timezone": "CET/CEST"}`)
	e.Want(422, "invalid", "PATCH", path, `{"fallback_timezone": "@subject"}`)
	e.Want(422, "invalid", "PATCH", path, `{"fallback_timezone": ""}`)
	e.Want(422, "wrong_type", "PATCH", path, `{"fallback_timezone": 1}`)
	e.Want(422, "unknown_timezone", "PUT", "/v1/workflows/w", `{"fallback_timezone": "Mars/Olympus"}`)
	e.Want(201, "", "PUT", "/v1/workflows/w", `{"fallback_timezone": "Asia/Tokyo"}`)
	following := `{"spec": {"cron": "0 8 * * *", "timezone": "@subject"}}`
	if got := e.Want(200, "", "POST", "/v1/schedules/preview", `{"workflow": "w", `+following[1:]); !strings.Contains(got.Body, "+09:00") {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(201, "", "PUT", "/v1/workflows/other/schedules/k", following); got.Doc["timezone_in_force"] != "Europe/Berlin" {
		t.Errorf("got %s", got.Body)
	}
	if got := e.Want(200, "", "GET", "/v1/schedules?workflow=other", ""); !strings.Contains(got.Body, `"timezone_in_force":"Europe/Berlin"`) {
		t.Errorf("got %s", got.Body)
	}
}
