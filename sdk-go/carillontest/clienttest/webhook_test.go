package clienttest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

func hook(t *testing.T, fn func(context.Context, carillon.Tick[int]) error, secrets ...string) http.Handler {
	t.Helper()
	if secrets == nil {
		secrets = []string{carillontest.Secret}
	}
	return webhook(t, carillon.WebhookConfig{Secrets: secrets, MaxBody: 1 << 10}, fn)
}

// webhook returns a webhook that runs the ticks of the workflow "w" by fn.
func webhook[P any](t *testing.T, config carillon.WebhookConfig, fn func(context.Context, carillon.Tick[P]) error) *carillon.Webhook {
	t.Helper()
	if config.Secrets == nil {
		config.Secrets = []string{carillontest.Secret}
	}
	config.Log = quiet
	h, err := carillon.NewWebhook(config)
	if err != nil {
		t.Fatal(err)
	}
	carillon.Handle(h, "w", fn)
	return h
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func signed(t *testing.T, body string) *http.Request {
	t.Helper()
	return carillontest.Request(t.Context(), carillontest.Secret, "t1", time.Now(), []byte(body))
}

func TestWebhookAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fn     func() error
		body   string
		status int
		says   string
	}{
		"success":       {func() error { return nil }, `{"tick_id":"t1","workflow":"w","payload":7}`, 204, ""},
		"test tick":     {func() error { panic("it ran") }, `{"tick_id":"test_1","workflow":"test","key":"test","payload":null}`, 204, ""},
		"later":         {func() error { return carillon.Later }, `{"tick_id":"t1","workflow":"w","payload":7}`, 202, ""},
		"failure":       {func() error { return errCut }, `{"tick_id":"t1","workflow":"w","payload":7}`, 500, errCut.Error()},
		"for good":      {func() error { return carillon.Permanent(errCut) }, `{"tick_id":"t1","workflow":"w","payload":7}`, 500, errCut.Error()},
		"panic":         {func() error { panic("oh") }, `{"tick_id":"t1","workflow":"w","payload":7}`, 500, "panic: oh"},
		"misfit":        {func() error { return nil }, `{"tick_id":"t1","workflow":"w","payload":"seven"}`, 422, "payload: "},
		"no payload":    {func() error { return errCut }, `{"tick_id":"t1","workflow":"w"}`, 500, ""},
		"no tick":       {func() error { return nil }, `{"type":"tick.failed"}`, 400, "neither"},
		"event":         {func() error { panic("it ran") }, `{"type":"tick.failed","id":"evt_1","count":1}`, 204, ""},
		"no JSON":       {func() error { return nil }, `{`, 400, "neither"},
		"too large":     {func() error { return nil }, `{"tick_id":"t1","workflow":"w","payload":7,"key":"` + strings.Repeat("k", 1<<10) + `"}`, 413, "1024 bytes"},
		"unknown field": {func() error { return nil }, `{"tick_id":"t1","workflow":"w","payload":7,"new":true}`, 204, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := send(hook(t, func(context.Context, carillon.Tick[int]) error { return test.fn() }), signed(t, test.body))
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.says) {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, test.status, test.says)
			}
		})
	}
}

func TestWebhookSaysWhenToRetry(t *testing.T) {
	t.Parallel()
	h := hook(t, func(context.Context, carillon.Tick[int]) error {
		return carillon.RetryAfter(errCut, 1500*time.Millisecond)
	})
	if w := send(h, signed(t, `{"tick_id":"t1","workflow":"w","payload":7}`)); w.Code != 503 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("got %d with Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestWebhookIsToldEvents(t *testing.T) {
	t.Parallel()
	var got carillon.Event
	fails := func() error { return nil }
	h := webhook(t, carillon.WebhookConfig{OnEvent: func(_ context.Context, e carillon.Event) error {
		got = e
		return fails()
	}}, func(context.Context, carillon.Tick[int]) error { return errCut })
	const event = `{"type":"tick.failed","id":"evt_1","count":3,"cause":"w","data":{"key":"k"}}`
	if w := send(h, signed(t, event)); w.Code != 204 || got.Type != "tick.failed" || got.ID != "evt_1" || got.Count != 3 || string(got.Data) != `{"key":"k"}` {
		t.Errorf("got %d, told of %+v", w.Code, got)
	}
	fails = func() error { return errCut }
	if w := send(h, signed(t, event)); w.Code != 500 {
		t.Errorf("one that fails: got %d", w.Code)
	}
	fails = func() error { panic("oh") }
	if w := send(h, signed(t, event)); w.Code != 500 {
		t.Errorf("one that panics: got %d", w.Code)
	}
}

func TestWebhookIsAPost(t *testing.T) {
	t.Parallel()
	h := hook(t, func(context.Context, carillon.Tick[int]) error { return nil })
	if w := send(h, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)); w.Code != 405 || w.Header().Get("Allow") != "POST" {
		t.Errorf("got %d", w.Code)
	}
}

func TestWebhookRunsABatch(t *testing.T) {
	t.Parallel()
	h := hook(t, func(_ context.Context, tick carillon.Tick[int]) error {
		switch tick.Payload {
		case 1:
			return nil
		case 2:
			return carillon.Later
		case 3:
			panic("oh")
		case 4:
			runtime.Goexit()
		}
		return errCut
	})
	body := `{"ticks":[{"tick_id":"a","workflow":"w","payload":1},{"tick_id":"b","workflow":"w","payload":2},{"tick_id":"c","workflow":"w","payload":3},{"tick_id":"d","workflow":"w","payload":4},{"tick_id":"e","workflow":"w","payload":5}]}`
	w := send(h, signed(t, body))
	want := `{"results":[{"tick_id":"a","status":"succeeded"},{"tick_id":"b","status":"running"},{"tick_id":"c","status":"failed","error":"panic: oh"},` +
		`{"tick_id":"d","status":"failed","error":"the handler ended its goroutine"},{"tick_id":"e","status":"failed","error":"` + errCut.Error() + `"}]}`
	if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %d %s\nwant %s", w.Code, w.Body, want)
	}
	if w := send(h, signed(t, `{"ticks":[]}`)); w.Code != 200 || w.Body.String() != `{"results":[]}` {
		t.Errorf("an empty batch: got %d %s", w.Code, w.Body)
	}
}

// Headers that anybody could have sent never reach the function.
func TestWebhookRefusesWhatIsNotSigned(t *testing.T) {
	t.Parallel()
	const other = "whsec_b3RoZXIgYnl0ZXMgb2YgYSBzZWNyZXQgaGVyZSE="
	body := []byte(`{"tick_id":"t1","workflow":"w","payload":7}`)
	request := func(secret string, off time.Duration) *http.Request {
		return carillontest.Request(t.Context(), secret, "t1", time.Now().Add(off), body)
	}
	header := func(name, value string) *http.Request {
		r := request(carillontest.Secret, 0)
		r.Header.Del(name)
		if value != "" {
			r.Header.Set(name, value)
		}
		return r
	}
	unsigned := header("webhook-signature", "")
	good := request(carillontest.Secret, 0).Header.Get("webhook-signature")
	for name, test := range map[string]struct {
		r    *http.Request
		good bool
	}{
		"signed":               {request(carillontest.Secret, 0), true},
		"4 minutes ago":        {request(carillontest.Secret, -4*time.Minute), true},
		"in 4 minutes":         {request(carillontest.Secret, 4*time.Minute), true},
		"6 minutes ago":        {request(carillontest.Secret, -6*time.Minute), false},
		"in 6 minutes":         {request(carillontest.Secret, 6*time.Minute), false},
		"another secret":       {request(other, 0), false},
		"no signature":         {unsigned, false},
		"no id":                {header("webhook-id", ""), false},
		"another id":           {header("webhook-id", "t2"), false},
		"no timestamp":         {header("webhook-timestamp", ""), false},
		"a timestamp of words": {header("webhook-timestamp", "now"), false},
		"a timestamp far off":  {header("webhook-timestamp", "-9223372036854775808"), false},
		"several signatures":   {header("webhook-signature", "v1a,xyz v1,AAAA "+good+" v2,"+good), true},
		"several, none good":   {header("webhook-signature", "v1a,xyz v1,AAAA v1, v1"), false},
		"the right one, cut":   {header("webhook-signature", good[:len(good)-4]), false},
		"the right one, as v2": {header("webhook-signature", strings.Replace(good, "v1", "v2", 1)), false},
		"another body": {func() *http.Request {
			r := signed(t, `{"tick_id":"t9"}`)
			r.Header = request(carillontest.Secret, 0).Header
			return r
		}(), false},
		"the other secret of two": {request(other, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			reached := false
			w := send(hook(t, func(context.Context, carillon.Tick[int]) error { reached = true; return nil }), test.r)
			if reached != test.good || test.good && w.Code != 204 || !test.good && w.Code != 401 {
				t.Errorf("got %d, reached %t", w.Code, reached)
			}
		})
	}
	both := hook(t, func(context.Context, carillon.Tick[int]) error { return nil }, carillontest.Secret, other)
	for _, secret := range []string{carillontest.Secret, other} {
		if w := send(both, request(secret, 0)); w.Code != 204 {
			t.Errorf("two secrets: got %d", w.Code)
		}
	}
}

// The example of the Standard Webhooks libraries.
func TestVerifierAgreesWithTheStandard(t *testing.T) {
	t.Parallel()
	v, err := carillon.NewVerifier([]string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	header.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	header.Set("webhook-timestamp", "1614265330")
	header.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	at := time.Unix(1614265330, 0)
	if err := v.Verify(header, []byte(`{"test": 2432232314}`), at); err != nil {
		t.Error(err)
	}
	if err := v.Verify(header, []byte(`{"test": 2432232315}`), at); !errors.Is(err, carillon.ErrSignature) {
		t.Errorf("got %v for another body", err)
	}
}

// A header may hold 1 MiB of signatures. They cost no more than one: the body is hashed once for each secret.
func TestManySignaturesCostAsMuchAsOne(t *testing.T) { // not in parallel: it counts allocations
	v, err := carillon.NewVerifier([]string{carillontest.Secret}, 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	body := bytes.Repeat([]byte("x"), 1<<20)
	good := carillontest.Request(t.Context(), carillontest.Secret, "t1", now, body).Header
	flood := good.Clone()
	forged := "v1," + base64.StdEncoding.EncodeToString(make([]byte, 32)) + " "
	flood.Set("webhook-signature", strings.Repeat(forged, 10_000))
	one := testing.AllocsPerRun(3, func() { _ = v.Verify(good, body, now) })
	many := testing.AllocsPerRun(3, func() { _ = v.Verify(flood, body, now) })
	if many > one+64 {
		t.Errorf("got %.0f allocations for 10,000 signatures, want about the %.0f of one", many, one)
	}
	for place, want := range map[int]error{15: nil, 16: carillon.ErrSignature} {
		header := good.Clone()
		header.Set("webhook-signature", strings.Repeat(forged, place)+good.Get("webhook-signature"))
		if err := v.Verify(header, body, now); !errors.Is(err, want) {
			t.Errorf("the right signature after %d forged ones: got %v, want %v", place, err, want)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	v, err := carillon.NewVerifier([]string{carillontest.Secret}, 0)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	body := bytes.Repeat([]byte("x"), 1<<20)
	header := carillontest.Request(b.Context(), carillontest.Secret, "t1", now, body).Header
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("signatures=%d", n), func(b *testing.B) {
			header := header.Clone()
			header.Set("webhook-signature", strings.Repeat(header.Get("webhook-signature")+" ", n))
			for b.Loop() {
				if err := v.Verify(header, body, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// unread is a body that nobody may read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a request that cannot be Carillon's was read")
	return 0, io.EOF
}

// A body is read only once the headers may be Carillon's, and the sender does not learn which check failed.
func TestHeadersAreCheckedBeforeTheBody(t *testing.T) {
	t.Parallel()
	h := hook(t, func(context.Context, carillon.Tick[int]) error { return nil })
	for name, change := range map[string]func(http.Header){
		"no id":          func(h http.Header) { h.Del("webhook-id") },
		"no timestamp":   func(h http.Header) { h.Del("webhook-timestamp") },
		"an old one":     func(h http.Header) { h.Set("webhook-timestamp", "1614265330") },
		"no signature":   func(h http.Header) { h.Del("webhook-signature") },
		"an empty one":   func(h http.Header) { h.Set("webhook-signature", "v1,") },
		"another length": func(h http.Header) { h.Set("webhook-signature", "v1,AAAA") },
	} {
		r := signed(t, `{"tick_id":"t1","workflow":"w"}`)
		change(r.Header)
		r.Body = io.NopCloser(unread{t})
		if w := send(h, r); w.Code != 401 || strings.TrimSpace(w.Body.String()) != carillon.ErrSignature.Error() {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
	}
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	for _, secrets := range [][]string{nil, {""}, {"whsec_"}, {"whsec_short"}, {"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, {carillontest.Secret, "whsec_%%%"}} {
		_, err := carillon.NewWebhook(carillon.WebhookConfig{Secrets: secrets})
		if err == nil || strings.Contains(err.Error(), "%%%") {
			t.Errorf("%v: got %v", secrets, err)
		}
	}
}

func TestPushedTickIsCompletedLater(t *testing.T) {
	t.Parallel()
	server := carillontest.New()
	c := server.Client()
	var held none
	h := webhook(t, carillon.WebhookConfig{},
		func(_ context.Context, tick none) error {
			held = tick
			if tick.Attempt == 1 {
				return errCut
			}
			return carillon.Later
		})
	server.Push("w", h)
	due(t, server, 1)
	if r := record(t, server, "k0"); r.State != "running" || r.Attempt != 2 || r.Attempts[0].Status != 500 || r.Attempts[0].Error != errCut.Error() {
		t.Fatalf("got %+v", r)
	}
	if err := c.Ticks.Complete(t.Context(), held.TickID, "not it", nil); !errors.Is(err, carillon.ErrConflict) {
		t.Errorf("a foreign token: got %v", err)
	}
	if until, err := c.Ticks.Heartbeat(t.Context(), held.TickID, held.LeaseToken, time.Minute); err != nil || time.Until(until) <= 0 {
		t.Errorf("a heartbeat: got %s, %v", until, err)
	}
	if err := c.Ticks.Complete(t.Context(), held.TickID, held.LeaseToken, json.RawMessage(`{"sent":3}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Ticks.Fail(t.Context(), held.TickID, held.LeaseToken, errCut); !errors.Is(err, carillon.ErrConflict) {
		t.Errorf("a second end: got %v", err)
	}
	if r := record(t, server, "k0"); r.State != "succeeded" || string(r.Result) != `{"sent":3}` {
		t.Errorf("got %+v", r)
	}
}

func TestBatchIsBoundInConcurrency(t *testing.T) {
	t.Parallel()
	slots := make(chan struct{}, 3)
	h := webhook(t, carillon.WebhookConfig{Concurrency: 3},
		func(context.Context, carillon.Tick[int]) error {
			select {
			case slots <- struct{}{}:
			default:
				return errors.New("more at once than there are slots")
			}
			runtime.Gosched()
			<-slots
			return nil
		})
	var ticks []string
	for i := range 100 {
		ticks = append(ticks, fmt.Sprintf(`{"tick_id":"t%d","workflow":"w","payload":%d}`, i, i))
	}
	w := send(h, signed(t, `{"ticks":[`+strings.Join(ticks, ",")+`]}`))
	if strings.Count(w.Body.String(), "succeeded") != 100 {
		t.Errorf("got %s", w.Body)
	}
}
