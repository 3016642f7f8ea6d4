package push_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/once"
)

// An endpoint that answers 429 or 503 says after how long its tick is sent again. Another status says nothing.
func TestAnEndpointSaysWhenItsTickIsSentAgain(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	date := time.Now().UTC().Add(20 * time.Minute).Format(http.TimeFormat)
	answers := map[string]struct {
		status int
		after  string
		least  string // of the wait
		most   string
	}{
		"busy":   {429, "600", "9 minutes", "11 minutes"},
		"down":   {503, date, "18 minutes", "21 minutes"},
		"long":   {503, "86400", "50 minutes", "61 minutes"},
		"broken": {500, "600", "-1 minutes", "1 minute"},
	}
	h.Start(h.Dispatch)
	for name, answer := range answers {
		h.Catcher(name, 1, func(_ int, w http.ResponseWriter) {
			w.Header().Set("Retry-After", answer.after)
			w.WriteHeader(answer.status)
		})
		h.Put(name, "k", dispatchtest.Rarely("skip"))
		if _, _, err := h.Dispatch.Control.Trigger(t.Context(), h.Tenant, name, "k", control.TriggerParams{}, once.Request{}); err != nil {
			t.Fatal(err)
		}
		const attempted = `SELECT count(*) FROM attempt a JOIN schedule s ON s.id = a.schedule_id WHERE s.workflow = $1`
		dispatchtest.Until(t, name+" has answered", func() bool { return h.Number(attempted, name) > 0 })
		waits := h.Number(`
			SELECT count(*)
			FROM delayed d
			JOIN schedule s ON s.id = d.schedule_id
			WHERE s.workflow = $1 AND d.due_at - clock_timestamp() BETWEEN $2::interval AND $3::interval`, name, answer.least, answer.most)
		if waits != 1 && name != "broken" {
			t.Errorf("%s: %d ticks wait from %s to %s", name, waits, answer.least, answer.most)
		}
		if long := h.Number(`SELECT count(*) FROM delayed d JOIN schedule s ON s.id = d.schedule_id WHERE s.workflow = $1 AND d.due_at > clock_timestamp() + interval '1 minute'`, name); name == "broken" && long != 0 {
			t.Errorf("%s waits as long as it said", name)
		}
	}
}
