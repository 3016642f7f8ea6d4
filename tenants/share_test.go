package tenants

import (
	"fmt"
	"testing"
	"time"
)

// as is a token of a caller of the tenant "other".
func (w *world) as(t *testing.T, caller string) string {
	t.Helper()
	s, err := w.minter.Mint(Claims{Subject: caller, Tenant: "other", Scopes: []string{TenantAdmin}, TTL: time.Minute}, w.now)
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + s
}

// A caller that sends far more than its tenant may leaves a part of the rate to the others.
func TestACallerLeavesAPartOfTheRateToOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.quotas(t, `{"requests_per_second": 20}`)
	e, _, _ := w.limited(t)
	wild, calm := w.as(t, "wild"), w.as(t, "calm")
	if rec, _ := ask(e, "GET", "/v1/schedules", calm, ""); rec.Code != 200 {
		t.Fatalf("got %d", rec.Code)
	}
	refused := 0
	for n := range 400 {
		if rec, _ := ask(e, "GET", "/v1/schedules", wild, ""); rec.Code == 429 {
			refused++
		}
		if n%40 == 39 { // ten times in all
			if rec, doc := ask(e, "GET", "/v1/schedules", calm, ""); rec.Code != 200 {
				t.Errorf("after %d requests of the other: got %d %v", n+1, rec.Code, doc)
			}
		}
	}
	if refused == 0 {
		t.Error("400 requests at once are let pass, at 20 a second")
	}
}

// A caller that is alone can use the whole rate of its tenant.
func TestACallerThatIsAloneHasTheWholeRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.quotas(t, `{"requests_per_second": 20}`)
	e, _, _ := w.limited(t)
	for n := range 40 {
		if rec, _ := ask(e, "GET", "/v1/schedules", w.as(t, "only"), ""); rec.Code != 200 {
			t.Errorf("request %d: got %d", n, rec.Code)
		}
	}
}

func TestACallerLeavesAPartOfWhatIsWorkedOnToOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.quotas(t, `{"requests_per_second": 1000, "concurrent_requests": 16}`)
	e, entered, release := w.limited(t)
	wild, calm := w.as(t, "wild"), w.as(t, "calm")
	if rec, _ := ask(e, "GET", "/v1/schedules", calm, ""); rec.Code != 200 {
		t.Fatalf("got %d", rec.Code)
	}
	const sent, passed = 20, 14
	done := make(chan int, sent)
	for range sent {
		go func() {
			rec, _ := ask(e, "GET", "/slow", wild, "")
			done <- rec.Code
		}()
	}
	working := 0
	for range sent {
		select {
		case <-entered:
			working++
		case code := <-done:
			if code != 429 {
				t.Errorf("got %d, want 429", code)
			}
		}
	}
	if working != passed {
		t.Errorf("%d are worked on, want %d of 16", working, passed)
	}
	for n := range 3 {
		if rec, doc := ask(e, "GET", "/v1/schedules", calm, ""); rec.Code != 200 {
			t.Errorf("request %d of the other: got %d %v", n, rec.Code, doc)
		}
	}
	close(release)
	for range working {
		if code := <-done; code != 200 {
			t.Errorf("got %d", code)
		}
	}
}

func TestWhoSendsMost(t *testing.T) {
	t.Parallel()
	clock := time.Now()
	k := newCallers()
	k.now = func() time.Time { return clock }
	name := bucketName{tenant: 1, quota: "requests_per_second"}
	send := func(caller string, times int) (others, most bool) {
		for range times {
			others, most = k.note(name, caller, 20)
		}
		return others, most
	}
	if others, most := send("a", 100); others || !most {
		t.Errorf("alone: got %v %v", others, most)
	}
	if others, most := send("b", 10); !others || most {
		t.Errorf("the second: got %v %v", others, most)
	}
	if others, most := send("a", 5); !others || !most {
		t.Errorf("the first, with another: got %v %v", others, most)
	}
	clock = clock.Add(othersSeen + time.Second)
	if others, _ := send("a", 2); others {
		t.Error("the other is seen for ever")
	}
	if _, most := send("b", 100); !most {
		t.Error("who sends most now is not known")
	}
	for n := range 200 { // many that send alike
		if _, most := send(fmt.Sprint("c", n%50), 1); most && n > 100 {
			t.Errorf("request %d: one of 50 sends most", n)
		}
	}
}
