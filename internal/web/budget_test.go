package web

import (
	"context"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/labstack/echo/v4"
)

// budgeted returns a router that reads the tenant from a header. A request holds its body until the test sends to, or closes, release.
func budgeted(b *Budget, entered chan<- struct{}, release <-chan struct{}) *echo.Echo {
	e := New(Options{Log: quiet(), BodyLimit: 8 << 20})
	tenants := map[string]int32{"acme": 1, "other": 2}
	g := e.Group("", b.Limit(func(c echo.Context) (int32, bool) {
		id, known := tenants[c.Request().Header.Get("X-Tenant")]
		return id, known
	}))
	g.POST("/", func(c echo.Context) error {
		body, err := Bytes(c)
		if err != nil {
			return err
		}
		entered <- struct{}{}
		<-release
		return Answer(c, 200, len(body))
	})
	return e
}

// The bodies of a tenant, compressed or not, fill at most its share of the budget, so those of other tenants still fit. A request that
// ends gives its bytes back.
func TestBodiesAreHeldToABudget(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	b := NewBudget(3 * SmallestShare / 2)
	e := budgeted(b, entered, release)
	noise := make([]byte, 5<<20)
	for i, at := 0, uint32(1); i < len(noise); i++ {
		at = at*1664525 + 1013904223
		noise[i] = byte(at >> 24)
	}
	zipped := packed(t, string(noise))
	ask := func(tenant string, gzipped bool) (int, string, map[string][]string) {
		sent := string(noise)
		if gzipped {
			sent = zipped
		}
		r := httptest.NewRequest("POST", "/", strings.NewReader(sent))
		r.Header.Set("X-Tenant", tenant)
		if gzipped {
			r.Header.Set("Content-Encoding", "gzip")
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		return w.Code, w.Body.String(), w.Header()
	}
	var held sync.WaitGroup
	for range 3 {
		held.Go(func() {
			if status, doc, _ := ask("acme", false); status != 200 {
				t.Errorf("a body that fits: %d %s", status, doc)
			}
		})
	}
	for range 3 {
		<-entered
	}
	for _, gzipped := range []bool{false, true} {
		status, doc, header := ask("acme", gzipped)
		if status != 429 || !strings.Contains(doc, `"quota":"bytes_in_flight"`) || header["Retry-After"] == nil {
			t.Errorf("a fourth body, packed %v: got %d %s", gzipped, status, doc)
		}
	}
	held.Go(func() {
		if status, doc, _ := ask("other", false); status != 200 {
			t.Errorf("another tenant's body: %d %s", status, doc)
		}
	})
	<-entered
	if status, doc, header := ask("other", false); status != 503 || !strings.Contains(doc, `"overloaded"`) || header["Retry-After"] == nil {
		t.Errorf("a body beyond what the process holds: got %d %s", status, doc)
	}
	close(release)
	held.Wait()
	if b.held != 0 || len(b.byTenant) != 0 {
		t.Errorf("%d bytes are held by nobody: %v", b.held, b.byTenant)
	}
}

// A small body takes a small part of the budget, so that usual requests never reach the tenant's share.
func TestSmallBodiesTakeLittle(t *testing.T) {
	t.Parallel()
	b := NewBudget(0)
	a := &account{budget: b, tenant: 1}
	in := &inbound{source: io.NopCloser(strings.NewReader(`{"spec":{}}`)), length: 11, limit: 1 << 20}
	if got, err := readAll(context.WithValue(t.Context(), accountKey, a), in); err != nil || string(got) != `{"spec":{}}` || a.reserved != reserveStep {
		t.Errorf("got %q, %v with %d bytes reserved", got, err, a.reserved)
	}
	a.close()
	if b.held != 0 {
		t.Errorf("%d bytes are still held", b.held)
	}
}

// A body that grows to hundreds of times its compressed size is refused, even if the result is within the body's limit.
func TestAPackedBodyMayNotGrowWithoutBounds(t *testing.T) {
	t.Parallel()
	e := New(Options{Log: quiet(), BodyLimit: 8 << 20})
	e.POST("/", func(c echo.Context) error {
		_, err := Bytes(c)
		return err
	})
	r := httptest.NewRequest("POST", "/", strings.NewReader(packed(t, strings.Repeat(" ", 7<<20))))
	r.Header.Set("Content-Encoding", "gzip")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	if w.Code != 413 || !strings.Contains(w.Body.String(), "body_too_large") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// A list with too many elements is refused before it is decoded, because the Go values take many times as many bytes.
func TestALongListIsRefusedUnread(t *testing.T) {
	t.Parallel()
	type many struct {
		Items []struct {
			A, B, C, D string `json:",omitempty"`
		} `json:"items" most:"3"`
	}
	var v many
	err := Unmarshal([]byte(`{"items":[{},{},{},{}`+strings.Repeat(",{}", 100)+`]}`), &v)
	if err == nil || !strings.Contains(err.Error(), "/items: must be at most 3 elements") || v.Items != nil {
		t.Errorf("got %v and %d elements", err, len(v.Items))
	}
	if err := Unmarshal([]byte(`{"items":[{},{},{}]}`), &v); err != nil || len(v.Items) != 3 {
		t.Errorf("got %v and %d elements", err, len(v.Items))
	}
}
