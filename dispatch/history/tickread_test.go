package history_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// One tick shows the payload with which it fired, and each attempt with its time and the answer of the endpoint.
func TestATickShowsItsPayloadAndTheAnswers(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	long := strings.Repeat("x", 2000)
	h.Catcher("w", 1, nil).AnswerEach(func(one dispatchtest.Handed, w http.ResponseWriter) {
		if one.Attempt == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("busy " + long))
		}
	})
	p := dispatchtest.Rarely("skip")
	p.Payload = []byte(`{"of":  "the version"}`)
	h.Put("w", "k", p)
	h.Start(h.Dispatch)
	made := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	read := func() history.Tick {
		return dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+made.TickID, "")
	}
	dispatchtest.Until(t, "the second attempt succeeds", func() bool { return read().State == "succeeded" })
	p.Payload = []byte(`"another"`)
	h.Put("w", "k", p)
	got := read()
	if string(got.Payload) != `{"of":  "the version"}` || got.PayloadKept != nil {
		t.Errorf("the payload is %s", got.Payload)
	}
	if len(got.Attempts) != 2 {
		t.Fatalf("got %+v", got.Attempts)
	}
	failed, done := got.Attempts[0], got.Attempts[1]
	if failed.TookMS == nil || failed.Answer == nil || *failed.Answer != ("busy " + long)[:1024] || *failed.Status != 503 {
		t.Errorf("got %+v", failed)
	}
	if done.Answer != nil || done.Outcome != "succeeded" {
		t.Errorf("got %+v", done)
	}
	h.Exec(`UPDATE revision SET payload = NULL, payload_kept = false`)
	got = read()
	if got.Payload != nil || got.PayloadKept == nil || *got.PayloadKept {
		t.Errorf("a dropped payload is %s, kept %v", got.Payload, got.PayloadKept)
	}
	own := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, `{"payload": [1,  2]}`)
	if got := dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+own.TickID, ""); string(got.Payload) != `[1,  2]` {
		t.Errorf("its own payload is %s", got.Payload)
	}
}

// A tick shows the zone by which its schedule was timed when it fired, in lists too, also if the schedule has another zone since then.
func TestATickShowsItsZoneAndLocalTime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.PutSubject("ann", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	for key, zone := range map[string]string{"ny": "America/New_York", "none": "", "subject": "@subject"} {
		p := schedules.Params{Spec: calendar.Spec{Timezone: zone, Cron: calendar.StringList{"0 0 1 1 *"}}, Subject: "ann"}
		h.Put("w", key, p)
	}
	h.Start(h.Dispatch)
	want := map[string]string{"ny": "America/New_York", "none": "UTC", "subject": "Asia/Tokyo"}
	check := func(tick history.Tick) {
		t.Helper()
		location, err := time.LoadLocation(want[tick.Key])
		if err != nil {
			t.Fatal(err)
		}
		if tick.Timezone != want[tick.Key] || tick.LocalTime != tick.Timestamp.In(location).Format(time.RFC3339) {
			t.Errorf("%s fired at %s in %q, want %q", tick.Key, tick.LocalTime, tick.Timezone, want[tick.Key])
		}
	}
	for key := range want {
		check(dispatchtest.Get[history.Tick](c, 202, "POST", "/v1/workflows/w/schedules/"+key+"/trigger", ""))
	}
	h.Put("w", "ny", schedules.Params{Spec: calendar.Spec{Timezone: "Europe/Paris", Cron: calendar.StringList{"0 0 1 1 *"}}, Subject: "ann"})
	h.Exec(`DELETE FROM cohort_timing WHERE NOT EXISTS (SELECT FROM cohort c JOIN schedule s ON s.cohort_id = c.id AND s.shard = c.shard WHERE c.hash = cohort_timing.hash)`)
	list := dispatchtest.Get[struct{ Items []history.Tick }](c, 200, "GET", "/v1/ticks", "")
	if len(list.Items) != 3 {
		t.Errorf("got %+v", list)
	}
	for _, tick := range list.Items {
		check(tick)
		check(dispatchtest.Get[history.Tick](c, 200, "GET", "/v1/ticks/"+tick.TickID, ""))
	}
	for key := range want {
		for _, tick := range dispatchtest.Get[struct{ Items []history.Tick }](c, 200, "GET", "/v1/workflows/w/schedules/"+key+"/ticks", "").Items {
			check(tick)
		}
	}
}
