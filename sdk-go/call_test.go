package carillon_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// script answers each request with the next of its answers, and keeps the requests.
type script struct {
	mu      sync.Mutex
	answers []answer
	seen    []request
}

type answer struct {
	status int
	header http.Header
	body   string
	err    error // instead of an answer
	after  time.Duration
}

type request struct {
	*http.Request
	body string
	at   time.Time
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.seen = append(s.seen, request{r, string(body), time.Now()})
	next := answer{status: 200, body: "{}"}
	if len(s.answers) > 0 {
		next, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	if next.after > 0 {
		select {
		case <-time.After(next.after):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if next.err != nil {
		return nil, next.err
	}
	return next.response(r), nil
}

func (a answer) response(r *http.Request) *http.Response {
	if a.header == nil {
		a.header = http.Header{}
	}
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body)), Request: r}
}

func (s *script) client(t *testing.T) *carillon.Client {
	t.Helper()
	c, err := carillon.New(carillon.Config{URL: "http://carillon.test/base", Token: "secret", HTTPClient: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func refused(status int, retryAfter string) answer {
	a := answer{status: status, body: `{"title":"no","status":0,"detail":"not now","code":"later"}`, header: http.Header{}}
	if retryAfter != "" {
		a.header.Set("Retry-After", retryAfter)
	}
	return a
}

var (
	errCut = errors.New("connection reset by peer")
	errAny = errors.New("whatever error")
)

func TestKeyIsOneSegment(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"a/b":     "a%2Fb",
		"a%2Fb":   "a%252Fb",
		"..":      "%2E%2E",
		".":       "%2E",
		"a b+c":   "a%20b+c",
		"ü?#":     "%C3%BC%3F%23",
		"user;1":  "user%3B1",
		"plain_1": "plain_1",
	} {
		s := &script{}
		if _, err := s.client(t).Schedules.Get(t.Context(), "w.1", key); err != nil {
			t.Fatal(err)
		}
		if got, want := s.seen[0].URL.EscapedPath(), "/base/v1/workflows/w.1/schedules/"+want; got != want {
			t.Errorf("key %q: got path %s, want %s", key, got, want)
		}
	}
}

func TestRequestBearsTokenAndName(t *testing.T) {
	t.Parallel()
	s := &script{}
	asked := 0
	c, err := carillon.New(carillon.Config{
		URL: "https://carillon.test/",
		TokenSource: func(context.Context) (carillon.AccessToken, error) {
			asked++
			return carillon.AccessToken{Token: "fresh"}, nil
		},
		HTTPClient: &http.Client{Transport: s},
		UserAgent:  "billing/3",
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Schedules.Delete(t.Context(), "w", "k", carillon.DeleteParams{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.seen[0].Header.Get("Authorization"); got != "Bearer fresh" || asked != 1 {
		t.Errorf("got %q after asking %d times, want the source's token, asked for once", got, asked)
	}
	if got := s.seen[0].UserAgent(); !strings.HasPrefix(got, "billing/3 carillon-go/") {
		t.Errorf("got user agent %q", got)
	}
}

func TestPayloadIsSentByteForByte(t *testing.T) {
	t.Parallel()
	s := &script{}
	c := s.client(t)
	payload := json.RawMessage(`{ "n": 12345678901234567890.10,  "html": "<&>" }`)
	if _, err := c.Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: carillon.Spec{Cron: []string{"* * * * *"}}, Payload: payload}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Schedules.Trigger(t.Context(), "w", "k", carillon.TriggerParams{Payload: payload}); err != nil {
		t.Fatal(err)
	}
	if err := c.Ticks.Complete(t.Context(), "t1", "lease", payload); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.seen {
		if !strings.Contains(r.body, string(payload)) || !json.Valid([]byte(r.body)) {
			t.Errorf("%s: got body %s", r.URL.Path, r.body)
		}
	}
	if _, err := c.Schedules.Put(t.Context(), "w", "k", carillon.Params{Payload: json.RawMessage(`{`)}); err == nil || len(s.seen) != 3 {
		t.Errorf("a payload that is no JSON was sent: %v", err)
	}
}

func TestZeroParamsSendNothingBesides(t *testing.T) {
	t.Parallel()
	s := &script{}
	if _, err := s.client(t).Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: carillon.Spec{Cron: []string{"@daily"}}}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.seen[0].body, `{"spec":{"cron":["@daily"]}}`; got != want {
		t.Errorf("got body %s, want %s", got, want)
	}
}

func TestErrorIsTheProblemDocument(t *testing.T) {
	t.Parallel()
	s := &script{answers: []answer{{
		status: 422,
		header: http.Header{"X-Request-Id": {"req-1"}},
		body: `{"type":"about:blank","title":"Unprocessable Entity","status":422,"detail":"two fields","instance":"req-1",
			"code":"invalid","errors":[{"pointer":"/spec/timezone","code":"invalid","detail":"no such zone"}]}`,
	}}}
	_, err := s.client(t).Schedules.Get(t.Context(), "w", "k")
	e, ok := asType[*carillon.Error](err)
	if !ok || e.Status != 422 || e.Code != "invalid" || e.RequestID != "req-1" || len(e.Fields) != 1 || e.Fields[0].Pointer != "/spec/timezone" {
		t.Fatalf("got %#v", err)
	}
	if !errors.Is(err, carillon.ErrInvalid) || errors.Is(err, carillon.ErrNotFound) {
		t.Errorf("422 is ErrInvalid and nothing else")
	}
	if got, want := err.Error(), "carillon: 422 invalid: two fields; /spec/timezone: no such zone (request req-1)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestErrorIsItsSentinel(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{
		400: carillon.ErrInvalid, 413: carillon.ErrInvalid, 415: carillon.ErrInvalid,
		401: carillon.ErrUnauthorized, 403: carillon.ErrForbidden, 404: carillon.ErrNotFound,
		409: carillon.ErrConflict, 412: carillon.ErrPrecondition, 429: carillon.ErrRateLimited, 503: carillon.ErrUnavailable,
	} {
		s := &script{answers: []answer{{status: status, body: "<html>", header: http.Header{"Retry-After": {"3600"}}}}}
		_, err := s.client(t).Schedules.Get(t.Context(), "w", "k")
		if !errors.Is(err, want) {
			t.Errorf("%d: got %v, want %v", status, err, want)
		}
		if e, ok := asType[*carillon.Error](err); !ok || e.Detail == "" || e.RetryAfter != time.Hour {
			t.Errorf("%d: got %#v", status, err)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	s := &script{answers: []answer{{status: 307, header: http.Header{"Location": {"http://elsewhere.test/"}}}}}
	c, err := carillon.New(carillon.Config{URL: "http://carillon.test", HTTPClient: &http.Client{
		Transport:     s,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Schedules.Get(t.Context(), "w", "k")
	if e, ok := asType[*carillon.Error](err); !ok || e.Status != 307 || len(s.seen) != 1 {
		t.Errorf("got %v after %d requests", err, len(s.seen))
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	get := func(ctx context.Context, c *carillon.Client) error {
		_, err := c.Schedules.Get(ctx, "w", "k")
		return err
	}
	trigger := func(ctx context.Context, c *carillon.Client) error {
		_, err := c.Schedules.Trigger(ctx, "w", "k", carillon.TriggerParams{})
		return err
	}
	putIfMatch := func(ctx context.Context, c *carillon.Client) error {
		_, err := c.Schedules.Put(ctx, "w", "k", carillon.Params{IfMatch: 3})
		return err
	}
	remove := func(ctx context.Context, c *carillon.Client) error {
		return c.Schedules.Delete(ctx, "w", "k", carillon.DeleteParams{})
	}
	cut, lease := answer{err: errCut}, func(ctx context.Context, c *carillon.Client) error {
		_, err := c.Ticks.Lease(ctx, carillon.LeaseParams{Max: 1})
		return err
	}
	rotate := func(ctx context.Context, c *carillon.Client) error {
		_, err := c.Endpoints.RotateSecret(ctx, "e")
		return err
	}
	unknown := answer{status: 503, body: `{"title":"no","status":503,"detail":"who knows","code":"outcome_unknown"}`, header: http.Header{}}
	for name, test := range map[string]struct {
		call     func(context.Context, *carillon.Client) error
		answers  []answer
		requests int
		least    time.Duration // that it takes
		most     time.Duration
		want     error
	}{
		"503 and 429 pass":                 {get, []answer{refused(503, ""), refused(429, "")}, 3, 0, time.Second, nil},
		"a connection is cut":              {get, []answer{cut, cut}, 3, 0, time.Second, nil},
		"four times at most":               {get, []answer{cut, cut, cut, cut, cut}, 5, 0, 4 * time.Second, errCut},
		"Retry-After is waited for":        {get, []answer{refused(429, "7")}, 2, 7 * time.Second, 8 * time.Second, nil},
		"Retry-After is too long":          {get, []answer{refused(503, "31")}, 1, 0, 0, carillon.ErrUnavailable},
		"404 does not pass":                {get, []answer{refused(404, "")}, 1, 0, 0, carillon.ErrNotFound},
		"500 does not pass":                {get, []answer{refused(500, "")}, 1, 0, 0, errAny},
		"a trigger has an idempotency key": {trigger, []answer{cut, refused(502, "")}, 3, 0, time.Second, nil},
		"a condition may have come true":   {putIfMatch, []answer{cut}, 1, 0, 0, errCut},
		"a condition was not looked at":    {putIfMatch, []answer{refused(503, "1")}, 2, time.Second, 2 * time.Second, nil},
		"the first delete got through":     {remove, []answer{cut, refused(404, "")}, 2, 0, time.Second, nil},
		"there was nothing to delete":      {remove, []answer{refused(404, "")}, 1, 0, 0, carillon.ErrNotFound},
		"an unknown delete got through":    {remove, []answer{unknown, refused(404, "")}, 2, 0, time.Second, nil},
		"an unknown trigger is sent again": {trigger, []answer{unknown}, 2, 0, time.Second, nil},
		"an unknown rotation is not":       {rotate, []answer{unknown}, 1, 0, 0, carillon.ErrUnavailable},
		"an unknown condition is not":      {putIfMatch, []answer{unknown}, 1, 0, 0, carillon.ErrUnavailable},
		"a lease is asked for once":        {lease, []answer{refused(429, "")}, 1, 0, 0, carillon.ErrRateLimited},
		"a black hole is given up":         {get, []answer{{after: time.Hour}}, 2, 30 * time.Second, 31 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: test.answers}
				began := time.Now()
				err := test.call(t.Context(), s.client(t))
				took := time.Since(began)
				if !errors.Is(err, test.want) && (err == nil || test.want != errAny) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				if len(s.seen) != test.requests {
					t.Errorf("got %d requests, want %d", len(s.seen), test.requests)
				}
				if took < test.least || took > test.most {
					t.Errorf("took %s, want %s to %s", took, test.least, test.most)
				}
				for _, r := range s.seen {
					if r.Header.Get("Idempotency-Key") != s.seen[0].Header.Get("Idempotency-Key") || r.body != s.seen[0].body {
						t.Error("two attempts at one call differ")
					}
				}
			})
		})
	}
}

func TestTriggersDifferInIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := &script{}
	c := s.client(t)
	for range 2 {
		if _, err := c.Schedules.Trigger(t.Context(), "w", "k", carillon.TriggerParams{}); err != nil {
			t.Fatal(err)
		}
	}
	one, two := s.seen[0].Header.Get("Idempotency-Key"), s.seen[1].Header.Get("Idempotency-Key")
	if one == "" || one == two {
		t.Errorf("got keys %q and %q", one, two)
	}
}

func TestDeadlineIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{refused(503, "20")}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, err := s.client(t).Schedules.Get(ctx, "w", "k")
		if !errors.Is(err, carillon.ErrUnavailable) || time.Since(began) > 0 {
			t.Errorf("got %v after %s, want the server's answer at once", err, time.Since(began))
		}
	})
}

// The deadline passes during the second attempt. Its error names the cause that the first attempt met, but is no refusal: the second
// attempt may have had its effect.
func TestTheErrorOfAnAttemptThatWasCutNamesTheOneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{refused(503, ""), {after: time.Hour}}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := s.client(t).Schedules.Get(ctx, "w", "k")
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, carillon.ErrUnavailable) || !strings.Contains(err.Error(), "the attempt before it: ") {
			t.Errorf("got %v, want the deadline with the refusal before it", err)
		}
	})
}

func TestContextEndsTheWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []answer{refused(503, "20")}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if _, err := s.client(t).Schedules.Get(ctx, "w", "k"); err == nil || time.Since(began) != time.Second {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

func TestTokenSourceFails(t *testing.T) {
	t.Parallel()
	s, down := &script{}, errors.New("the vault is sealed")
	c, err := carillon.New(carillon.Config{
		URL: "http://carillon.test", HTTPClient: &http.Client{Transport: s},
		TokenSource: func(context.Context) (carillon.AccessToken, error) { return carillon.AccessToken{}, down },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Schedules.Get(t.Context(), "w", "k"); !errors.Is(err, down) || len(s.seen) != 0 {
		t.Errorf("got %v after %d requests", err, len(s.seen))
	}
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	source := func(context.Context) (carillon.AccessToken, error) { return carillon.AccessToken{}, nil }
	for _, c := range []carillon.Config{
		{}, {URL: "carillon.test"}, {URL: "ftp://carillon.test"}, {URL: "http://user:pass@carillon.test"},
		{URL: "http://carillon.test?x=1"}, {URL: "http://carillon.test", Token: "t", TokenSource: source},
	} {
		if _, err := carillon.New(c); err == nil || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%+v: got %v", c.URL, err)
		}
	}
}

func TestErrorsAreComparedByCode(t *testing.T) {
	t.Parallel()
	s := &script{answers: []answer{{status: 403, body: `{"code":"quota_exceeded","quota":"schedules","limit":10,"used":10}`}}}
	_, err := s.client(t).Schedules.Put(t.Context(), "w", "k", carillon.Params{Spec: daily})
	for target, want := range map[error]bool{
		carillon.CodeQuotaExceeded: true, carillon.ErrForbidden: true, carillon.CodeRateLimited: false, carillon.ErrConflict: false,
	} {
		if errors.Is(err, target) != want {
			t.Errorf("%v is %v: %t, want %t", err, target, !want, want)
		}
	}
	if e, ok := asType[*carillon.Error](err); !ok || e.Quota != "schedules" || e.Limit != 10 || e.Used != 10 {
		t.Errorf("got %+v", e)
	}
}
