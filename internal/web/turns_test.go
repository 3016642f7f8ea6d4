package web

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"
)

// Tenants get turns round-robin, however many requests of one tenant wait. A request that gives up leaves the queue.
func TestTurnsGoRoundTheTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := &turns{free: 1}
		if err := line.begin(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int32
		want := func(ctx context.Context, tenant int32) (err error) {
			if err = line.begin(ctx, tenant); err == nil {
				mu.Lock()
				order = append(order, tenant)
				mu.Unlock()
				line.end()
			}
			return err
		}
		for _, tenant := range []int32{1, 1, 1, 2, 3, 2} {
			go func() { _ = want(t.Context(), tenant) }()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { gone <- want(ctx, 4) }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		line.end()
		synctest.Wait()
		if got := []int32{1, 2, 3, 1, 2, 1}; !slices.Equal(order, got) {
			t.Errorf("got turns %v, want %v", order, got)
		}
		if line.free != 1 || len(line.queue) != 0 {
			t.Errorf("%d turns are free, and %d tenants wait", line.free, len(line.queue))
		}
	})
}

// On a machine with few processors a turn is followed by a rest as long as itself, while other tenants make requests.
func TestATurnIsFollowedByARestBesideOthers(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]bool{"beside others": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := NewBudget(0)
				b.turns = &turns{free: 1, rests: true}
				b.turns.saw(2, time.Now())
				time.Sleep(2 * othersSeen)
				for _, took := range []time.Duration{30 * time.Millisecond, time.Second} {
					one, next := turn{account: &account{budget: b, tenant: 1}}, turn{account: &account{budget: b, tenant: 1}}
					if err := one.begin(t.Context()); err != nil {
						t.Fatal(err)
					}
					time.Sleep(took)
					if others {
						b.turns.saw(2, time.Now())
					}
					b.turns.saw(1, time.Now())
					one.end()
					ended := time.Now()
					if err := next.begin(t.Context()); err != nil {
						t.Fatal(err)
					}
					want := min(took, longestRest)
					if !others {
						want = 0
					}
					if rested := time.Since(ended); rested != want {
						t.Errorf("after a turn of %v the next began after %v, want %v", took, rested, want)
					}
					next.end()
				}
			})
		})
	}
}

// A large compressed body, a large JSON value and a long answer each wait for a turn and give it back. Small ones do not wait.
func TestMuchWorkWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, waitForTurns)
}

func waitForTurns(t *testing.T) {
	b := NewBudget(0)
	b.turns = &turns{free: 1}
	e := New(Options{Log: quiet(), BodyLimit: 8 << 20})
	g := e.Group("", b.Limit(func(echo.Context) (int32, bool) { return 1, true }))
	g.POST("/", func(c echo.Context) error {
		v, err := Body[struct {
			Texts []string `json:"texts"`
		}](c)
		if err != nil {
			return err
		}
		return AnswerPage(c, v.Texts, nil)
	})
	ask := func(n int, gzipped bool) (int, string) {
		body := `{"texts":["` + strings.Repeat(strings.Repeat("x", 1000)+`","`, n) + `"]}`
		sent := body
		if gzipped {
			sent = packed(t, body)
		}
		r := httptest.NewRequest("POST", "/", strings.NewReader(sent))
		r.Header.Set("Content-Type", "application/json")
		if gzipped {
			r.Header.Set("Content-Encoding", "gzip")
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if err := b.turns.begin(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for _, gzipped := range []bool{false, true} {
		if status, doc := ask(10, gzipped); status != 200 {
			t.Errorf("a small one, packed %v: %d %s", gzipped, status, doc)
		}
	}
	var asked sync.WaitGroup
	for _, gzipped := range []bool{false, true} {
		asked.Go(func() {
			if status, answer := ask(400, gzipped); status != 200 || strings.Count(answer, "xxx") < 400 {
				t.Errorf("a large one, packed %v: %d and %d bytes", gzipped, status, len(answer))
			}
		})
	}
	waiting := func() int {
		b.turns.mu.Lock()
		defer b.turns.mu.Unlock()
		if len(b.turns.queue) == 0 {
			return 0
		}
		return len(b.turns.queue[0].waiting)
	}
	synctest.Wait()
	if n := waiting(); n != 2 {
		t.Errorf("%d wait, want 2", n)
	}
	b.turns.end()
	asked.Wait()
	if b.turns.free != 1 {
		t.Errorf("%d turns are free, want 1", b.turns.free)
	}
}

type withRaw struct {
	A string `json:"a"`
	P Raw    `json:"p"`
	Q Raw    `json:"q"`
}

func (w *withRaw) LongRaws() []*Raw { return []*Raw{&w.P, &w.Q} }

// A list writes the long members of its items byte for byte, and leaves the items as they are.
func TestAListWritesLongRawsAsTheyAre(t *testing.T) {
	t.Parallel()
	long := Raw(`{ "x":  "` + strings.Repeat("<é>", 40) + `" }`)
	items := []withRaw{{"one", long, Raw(`1.0`)}, {"two", nil, long}, {A: "three"}}
	e := New(Options{Log: quiet()})
	e.GET("/", func(c echo.Context) error { return AnswerPage(c, items, nil) })
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	want := `{"items":[{"a":"one","p":` + string(long) + `,"q":1.0},{"a":"two","p":null,"q":` + string(long) + `},{"a":"three","p":null,"q":null}],"next_cursor":null}`
	if got := w.Body.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if string(items[0].P) != string(long) || string(items[1].Q) != string(long) {
		t.Errorf("the items were changed: %q", items)
	}
}
