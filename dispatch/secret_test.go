package dispatch_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/dispatch/push"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/schedules"
)

// receiver is an endpoint that keeps requests as they come, and answers with status.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	text   string
	got    []request
}

type request struct {
	header http.Header
	body   []byte
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: 204}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.got = append(r.got, request{req.Header, body})
	}
	w.WriteHeader(r.status)
	if r.text != "" {
		_, _ = io.WriteString(w, r.text) // the client may have gone
	}
}

func (r *receiver) answers(status int, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.text = status, text
}

func (r *receiver) requests() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.got...)
}

// last is the newest request.
func (r *receiver) last(t *testing.T) request {
	t.Helper()
	all := r.requests()
	if len(all) == 0 {
		t.Fatal("nothing came")
	}
	return all[len(all)-1]
}

// signedBy tells which of the secrets a request is signed by.
func (r request) signedBy(t *testing.T, secrets ...string) string {
	t.Helper()
	var by strings.Builder
	for _, secret := range secrets {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if hook.Verify(r.body, r.header) == nil {
			by.WriteString("yes ")
		} else {
			by.WriteString("no ")
		}
	}
	return strings.TrimSpace(by.String())
}

func TestTwoSecretsAreValidAtATime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.config.Keyset = newKeyset(t)
	r := newReceiver(t)
	s := h.open(h.process())
	c := s.operator()
	const path = "/v1/endpoints/e"
	first := get[push.Endpoint](c, 201, "PUT", path, `{"url": "`+r.URL+`", "batch": 7}`)
	second := get[push.Endpoint](c, 201, "POST", path+"/secrets", "")
	if !strings.HasPrefix(second.Secret, "whsec_") || second.Secret == first.Secret || second.Batch != 7 || !second.UpdatedAt.After(first.UpdatedAt) {
		t.Errorf("got %+v", second)
	}
	if got := get[push.Endpoint](c, 200, "GET", path, ""); got.Secret != "" {
		t.Error("the secret is shown again")
	}
	get[push.Trial](c, 200, "POST", path+"/test", "")
	if got := r.last(t).signedBy(t, first.Secret, second.Secret); got != "yes yes" {
		t.Errorf("signed by the first and the second: %s", got)
	}
	c.refused(409, "rotated_lately", "", "POST", path+"/secrets", "")
	c.refused(409, "rotated_lately", "", "POST", path+"/secrets?force=false", "")
	c.refused(422, "invalid", "/force", "POST", path+"/secrets?force=yes", "")
	get[push.Trial](c, 200, "POST", path+"/test", "")
	if got := r.last(t).signedBy(t, first.Secret, second.Secret); got != "yes yes" {
		t.Errorf("after a rotation that was refused, signed by the first and the second: %s", got)
	}
	third := get[push.Endpoint](c, 201, "POST", path+"/secrets?force=true", "")
	get[push.Endpoint](c, 200, "PUT", path, `{"url": "`+r.URL+`"}`) // a change of the endpoint leaves its secrets
	get[push.Trial](c, 200, "POST", path+"/test", "")
	if got := r.last(t).signedBy(t, first.Secret, second.Secret, third.Secret); got != "no yes yes" {
		t.Errorf("signed by the first, the second and the third: %s", got)
	}

	reader, rival := s.as("acme", "schedules:read"), s.as("rival", "tenant:admin")
	for _, what := range []string{"/secrets", "/test"} {
		if got := reader.do("POST", path+what, ""); got.status != 403 {
			t.Errorf("%s with schedules:read: got %d", what, got.status)
		}
		rival.refused(404, "not_found", "", "POST", path+what, "")
		c.refused(404, "not_found", "", "POST", "/v1/endpoints/none"+what, "")
	}
	if n := len(r.requests()); n != 3 {
		t.Errorf("%d requests were made", n)
	}
}

func TestAnEndpointIsRotatedAgainAfterAnHour(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.dispatch)
	c := s.operator()
	const path = "/v1/endpoints/e"
	get[push.Endpoint](c, 201, "PUT", path, `{"url": "https://example.com/"}`)
	get[push.Endpoint](c, 201, "POST", path+"/secrets", "")
	get[push.Endpoint](c, 200, "PUT", path, `{"url": "https://example.com/2"}`) // is no rotation
	stored := h.secrets("e")
	h.exec(`UPDATE endpoint SET rotated_at = rotated_at - interval '59 minutes'`)
	c.refused(409, "rotated_lately", "", "POST", path+"/secrets", "")
	if again := h.secrets("e"); !bytes.Equal(again[0], stored[0]) || !bytes.Equal(again[1], stored[1]) {
		t.Error("it was rotated all the same")
	}
	h.exec(`UPDATE endpoint SET rotated_at = rotated_at - interval '1 minute'`)
	get[push.Endpoint](c, 201, "POST", path+"/secrets", "")
}

func TestARepeatedRotationChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.open(h.dispatch)
	c := s.operator()
	get[push.Endpoint](c, 201, "PUT", "/v1/endpoints/e", `{"url": "https://example.com/"}`)
	rotate := func() string {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/endpoints/e/secrets", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Idempotency-Key", "one")
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 201 {
			t.Fatalf("got %d %s, %v", resp.StatusCode, body, err)
		}
		return string(body)
	}
	first := rotate()
	stored := h.secrets("e")
	if second := rotate(); !strings.Contains(first, "whsec_") || strings.Contains(second, "whsec_") {
		t.Errorf("got %s, then %s", first, second)
	}
	if again := h.secrets("e"); len(again) != 2 || !bytes.Equal(again[0], stored[0]) {
		t.Error("it was rotated again")
	}
	if n := h.number(`SELECT count(*) FROM idempotency WHERE convert_from(answer, 'UTF8') LIKE '%whsec_%'`); n != 0 {
		t.Error("the secret is kept with the answer")
	}
}

func newKeyset(t *testing.T) *keyset.Keyset {
	t.Helper()
	k, err := keyset.New()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// secrets are those of an endpoint as they are stored.
func (h *house) secrets(name string) (stored [][]byte) {
	h.t.Helper()
	if err := h.pool.QueryRow(h.t.Context(), `SELECT secrets FROM endpoint WHERE tenant_id = $1 AND name = $2`, h.tenant, name).Scan(&stored); err != nil {
		h.t.Fatal(err)
	}
	return stored
}

func plain(t *testing.T, secret string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// with is a process of the house that has a keyset.
func (h *house) with(k *keyset.Keyset) *process {
	h.t.Helper()
	h.config.Keyset = k
	return h.process()
}

// try sends a test tick by a process, and tells by which of the secrets it came signed; "" where none was sent.
func (r *receiver) try(h *house, d *process, name string, secrets ...string) string {
	h.t.Helper()
	before := len(r.requests())
	trial, err := d.Pusher.TryEndpoint(h.t.Context(), h.tenant, name)
	if err != nil {
		h.t.Fatal(err)
	}
	if len(r.requests()) == before {
		if trial.Error == nil || trial.Status != nil {
			h.t.Errorf("nothing was sent, and it says %+v", trial)
		}
		return ""
	}
	return r.last(h.t).signedBy(h.t, secrets...)
}

func TestSecretsAreSealed(t *testing.T) {
	t.Parallel()
	h, r := newHouse(t), newReceiver(t)
	old := newKeyset(t)
	put := func(d *process, name string) string {
		t.Helper()
		e, _, err := d.Pusher.PutEndpoint(t.Context(), h.tenant, name, push.EndpointParams{URL: r.URL})
		if err != nil {
			t.Fatal(err)
		}
		return e.Secret
	}
	bare, sealing := h.with(nil), h.with(old)

	clear := put(bare, "clear")
	if got := h.secrets("clear"); !bytes.Equal(got[0], plain(t, clear)) {
		t.Errorf("without a keyset it is stored as %x", got)
	}
	if got := r.try(h, sealing, "clear", clear); got != "yes" {
		t.Errorf("a secret in the clear signs: %s", got)
	}
	put(sealing, "clear")
	if got := h.secrets("clear"); bytes.Contains(got[0], plain(t, clear)) {
		t.Error("it is in the clear after it was written again")
	}
	if got := r.try(h, sealing, "clear", clear); got != "yes" {
		t.Errorf("once sealed it signs: %s", got)
	}

	sealed := put(sealing, "sealed")
	if got := h.secrets("sealed"); len(got) != 1 || bytes.Contains(got[0], plain(t, sealed)) {
		t.Errorf("it is stored as %x", got)
	}
	fresh, err := old.Rotated()
	if err != nil {
		t.Fatal(err)
	}
	rotated := h.with(fresh)
	if got := r.try(h, rotated, "sealed", sealed); got != "yes" {
		t.Errorf("with another key first it signs: %s", got)
	}
	put(rotated, "sealed")
	if got := r.try(h, sealing, "sealed", sealed); got != "" {
		t.Errorf("sealed by the new key, the old keyset opens it: %s", got)
	}
	if got := r.try(h, bare, "sealed", sealed); got != "" {
		t.Errorf("it opens without a keyset: %s", got)
	}
	report, err := push.Sealings(t.Context(), h.pool, old)
	if want := (push.Sealing{Sealed: 2, Unreadable: 1}); err != nil || report != want {
		t.Errorf("got %+v, %v, want %+v", report, err, want)
	}

	// What is moved to another endpoint opens no more.
	if _, err := h.pool.Exec(t.Context(), `UPDATE endpoint SET secrets = (SELECT secrets FROM endpoint WHERE name = 'sealed') WHERE name = 'clear'`); err != nil {
		t.Fatal(err)
	}
	if got := r.try(h, rotated, "clear", sealed); got != "" {
		t.Errorf("of another endpoint it signs: %s", got)
	}
}

func TestTicksWaitForAKeysetThatIsMissing(t *testing.T) {
	t.Parallel()
	h, r := newHouse(t), newReceiver(t)
	k := newKeyset(t)
	made, _, err := h.with(k).Pusher.PutEndpoint(t.Context(), h.tenant, "e", push.EndpointParams{URL: r.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.schedules.PutWorkflow(t.Context(), h.tenant, "w", schedules.WorkflowParams{Endpoint: new("e")}); err != nil {
		t.Fatal(err)
	}
	without := h.with(nil)
	if err := without.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := everySecond()
	p.Spec = calendar.Spec{Intervals: []calendar.Interval{{Every: "1s"}}, MaxTicks: new(1)}
	h.put("w", "k", p)
	until(t, "the tick is held without an attempt", func() bool {
		return h.number(`SELECT count(*) FROM held WHERE why = 'endpoint' AND attempt = 1`) == 1
	})
	if err := without.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.start(h.with(k))
	until(t, "it has succeeded", func() bool { return h.number(`SELECT count(*) FROM tick WHERE state = 2`) == 1 })
	if got := r.last(t).signedBy(t, made.Secret); got != "yes" || len(r.requests()) != 1 {
		t.Errorf("%d requests, signed: %s", len(r.requests()), got)
	}
}
