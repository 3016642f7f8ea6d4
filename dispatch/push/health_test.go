package push_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/push"
)

const healthPath = "/v1/endpoints/w/health"

// The health of an endpoint counts requests, tells the last answers, and shows what another process does too.
func TestTheHealthOfAnEndpoint(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Catcher("w", 1, nil).AnswerEach(func(one dispatchtest.Handed, w http.ResponseWriter) {
		if one.Attempt == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("busy"))
		}
	})
	h.Put("w", "k", dispatchtest.Rarely("skip"))
	none := dispatchtest.Get[push.Health](c, 200, "GET", healthPath, "")
	if none.State != "enabled" || none.Breaker != "closed" || len(none.Minutes) != 0 || len(none.Last) != 0 {
		t.Errorf("without a request it is %+v", none)
	}
	h.Start(h.Dispatch)
	tick := dispatchtest.Get[history.Tick](c, 202, "POST", dispatchtest.Trigger, "")
	var got push.Health
	dispatchtest.Until(t, "both requests are counted, and nothing is under way", func() bool {
		got = dispatchtest.Get[push.Health](c, 200, "GET", healthPath, "")
		return len(got.Last) >= 2 && got.Last[0].Error == nil && got.InFlight == 0
	})
	again := h.TakenOver(0)
	var succeeded, failed int64
	for _, m := range got.Minutes {
		succeeded, failed = succeeded+m.Succeeded, failed+m.Failed
		if m.P50MS < 1 || m.P99MS < m.P50MS || m.At.Second() != 0 {
			t.Errorf("got %+v", m)
		}
	}
	if succeeded < 1 || failed < 1 || (succeeded > 1 || failed > 1 || len(got.Last) > 2) && !again {
		t.Errorf("got %+v", got.Minutes)
	}
	if good, bad := got.Last[0], got.Last[1]; *good.Status != 200 || good.Error != nil || *bad.Status != 503 || *bad.Error != "the endpoint answered 503: busy" || good.TickID != tick.TickID {
		t.Errorf("got %+v", got.Last)
	}
	h.Exec(`
		INSERT INTO endpoint_health (tenant_id, endpoint, process_id, at, breaker, open_until, queued, in_flight, minutes, last)
		SELECT tenant_id, endpoint, 999, clock_timestamp(), 'open', clock_timestamp() + interval '1 minute', 7, 3, minutes, '[]' FROM endpoint_health`)
	got = dispatchtest.Get[push.Health](c, 200, "GET", healthPath, "")
	if got.Breaker != "open" || got.OpenUntil == nil || got.Queued != 7 || got.InFlight != 3 || got.Minutes[0].Succeeded+got.Minutes[0].Failed < 2 || len(got.Last) < 2 || len(got.Last) > 2 && !again {
		t.Errorf("two processes show %+v", got)
	}
	h.Exec(`UPDATE endpoint_health SET at = clock_timestamp() - interval '1 minute' WHERE process_id = 999`)
	if got = dispatchtest.Get[push.Health](c, 200, "GET", healthPath, ""); got.Breaker != "closed" || got.Queued != 0 {
		t.Errorf("a silent process counts: %+v", got)
	}
	h.Exec(`UPDATE endpoint_health SET at = clock_timestamp() - interval '1 hour' WHERE process_id = 999`)
	if _, err := h.Dispatch.Keeper.Fresh("clear health of endpoints").Some(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM endpoint_health WHERE process_id = 999`); n != 0 {
		t.Errorf("%d rows of old health are left", n)
	}
	c.Refused(404, "not_found", "", "GET", "/v1/endpoints/none/health", "")
}

// An open breaker is shown, with the time until which it is open.
func TestTheHealthShowsAnOpenBreaker(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Catcher("w", 1, func(_ int, w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	h.Fire("w", 12, 2)
	h.Start(h.Dispatch)
	var got push.Health
	dispatchtest.Until(t, "the breaker is open", func() bool {
		got = dispatchtest.Get[push.Health](c, 200, "GET", healthPath, "")
		return got.Breaker == "open"
	})
	if got.OpenUntil == nil || time.Until(*got.OpenUntil) > time.Minute {
		t.Errorf("got %+v", got)
	}
}

// Index entries of rows that were replaced cannot be removed while an old snapshot is open. Writing the next row does not read them.
func TestWritingHealthDoesNotReadEarlierRowsUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	h.Catcher("w", 1, nil)
	d, r := h.Recording()
	h.OldSnapshot()
	h.Start(d)
	for n := range 2 {
		h.Fire("w", 1, 1)
		dispatchtest.Until(t, "the request is counted", func() bool {
			return len(dispatchtest.Get[push.Health](c, 200, "GET", healthPath, "").Last) > n
		})
	}
	const word = "INSERT INTO endpoint_health"
	before := h.Entries(r, word)
	for range 20 {
		h.Exec(`
			INSERT INTO endpoint_health (tenant_id, endpoint, process_id, at, breaker, queued, in_flight, minutes, last)
			SELECT tenant_id, endpoint, process_id, at - n * interval '1 ms', breaker, queued, in_flight, minutes, last
			FROM endpoint_health CROSS JOIN generate_series(1, 200) n`)
		h.Exec(`DELETE FROM endpoint_health h WHERE EXISTS (SELECT FROM endpoint_health i WHERE i.process_id = h.process_id AND i.at > h.at)`)
	}
	dispatchtest.Grown(t, before, h.Entries(r, word))
	if n := h.Number(`SELECT count(*) FROM endpoint_health`); n != 1 {
		t.Errorf("%d rows of one process", n)
	}
}
