package push_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/schedules"
)

const samplePath = "/v1/workflows/w/schedules/k/sample"

// A sample is what a worker gets for that tick, but for what depends on when and to whom it is sent.
func TestASampleIsTheTickThatComes(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	first := time.Now().UTC().Truncate(time.Second).Add(15 * time.Second)
	p := schedules.Params{
		Spec: calendar.Spec{At: []string{first.Format(time.RFC3339), first.AddDate(0, 1, 0).Format(time.RFC3339)}}, Subject: "ann", Labels: map[string]string{"plan": "pro"}, Payload: []byte(`{"n":  1e400}`),
	}
	h.Put("w", "k", p)
	sample := dispatchtest.Get[push.Sample](c, 200, "GET", samplePath, "")
	if len(sample.Headers) != 0 {
		t.Errorf("a pulled tick has the headers %v", sample.Headers)
	}
	want := fields(t, sample.Body)
	h.Start(h.Dispatch)
	var leased struct{ Ticks []json.RawMessage }
	dispatchtest.Until(t, "the tick is leased", func() bool {
		leased = dispatchtest.Get[struct{ Ticks []json.RawMessage }](c, 200, "POST", "/v1/ticks/lease", `{"workflows": ["w"], "wait": "5s"}`)
		return len(leased.Ticks) == 1
	})
	for name, value := range fields(t, leased.Ticks[0]) {
		if name != "fired_at" && name != "lateness_ms" && name != "lease_token" && want[name] != value {
			t.Errorf("%s is %s, and the sample has %s", name, value, want[name])
		}
	}
	sent := dispatchtest.Get[push.Sample](c, 200, "GET", samplePath, "") // the definition is the same, and the sequence goes on
	if next := fields(t, sent.Body); next["last_timestamp"] != want["timestamp"] || next["occurrence"] != "2" {
		t.Errorf("after a tick the sample is %s", sent.Body)
	}
	if want["payload"] != `{"n":  1e400}` || want["subject"] != `"ann"` || want["attempt"] != "1" {
		t.Errorf("the sample is %s", sample.Body)
	}
}

func fields(t *testing.T, body []byte) map[string]string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for name, value := range raw {
		all[name] = string(value)
	}
	return all
}

// The sample of a push has its headers, and nothing with which a reader could send a tick.
func TestTheSampleOfAPushShowsNoSecret(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Catcher("w", 1, func(int, http.ResponseWriter) {})
	h.Exec(`UPDATE endpoint SET batch = 1`)
	made := h.Put("w", "k", dispatchtest.Rarely("skip"))
	at := made.Upcoming[2]
	sample := dispatchtest.Get[push.Sample](c, 200, "GET", samplePath+"?at="+at.Format(time.RFC3339), "")
	f := fields(t, sample.Body)
	if f["timestamp"] != `"`+at.Format(time.RFC3339)+`"` || f["occurrence"] != "3" || f["lease_token"] != `"(not shown)"` || f["last_timestamp"] != `"`+made.Upcoming[1].Format(time.RFC3339)+`"` {
		t.Errorf("got %s", sample.Body)
	}
	if sample.Headers["Webhook-Signature"] != "v1,(not shown)" || `"`+sample.Headers["Webhook-Id"]+`"` != f["tick_id"] || sample.Headers["Content-Type"] != "application/json" {
		t.Errorf("got %v", sample.Headers)
	}
	c.Refused(422, "invalid", "/at", "GET", samplePath+"?at="+at.Add(time.Minute).Format(time.RFC3339), "")
	c.Refused(422, "invalid", "/at", "GET", samplePath+"?at=2020-01-01T00:00:00Z", "")
	c.Refused(422, "invalid", "/at", "GET", samplePath+"?at=soon", "")
	c.Refused(404, "not_found", "", "GET", "/v1/workflows/w/schedules/none/sample", "")
	h.Exec(`UPDATE schedule SET status = 'completed', cohort_id = NULL, spec = '{"at":["2020-01-01T00:00:00Z"]}' WHERE key = 'k'`)
	c.Refused(409, "not_active", "", "GET", samplePath, "")
}
