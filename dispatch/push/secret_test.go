package push_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/keyset"
	"github.com/carillonhq/carillon/schedules"
)

func TestTwoSecretsAreValidAtATime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Keyset = newKeyset(t)
	r := dispatchtest.NewReceiver(t)
	s := h.Open(h.Process())
	c := s.Operator()
	const path = "/v1/endpoints/e"
	first := dispatchtest.Get[push.Endpoint](c, 201, "PUT", path, `{"url": "`+r.URL+`", "batch": 7}`)
	second := dispatchtest.Get[push.Endpoint](c, 201, "POST", path+"/secrets", "")
	if !strings.HasPrefix(second.Secret, "whsec_") || second.Secret == first.Secret || second.Batch != 7 || !second.UpdatedAt.After(first.UpdatedAt) {
		t.Errorf("got %+v", second)
	}
	if got := dispatchtest.Get[push.Endpoint](c, 200, "GET", path, ""); got.Secret != "" {
		t.Error("the secret is shown again")
	}
	dispatchtest.Get[push.Trial](c, 200, "POST", path+"/test", "")
	if got := r.Last(t).SignedBy(t, first.Secret, second.Secret); got != "yes yes" {
		t.Errorf("signed by the first and the second: %s", got)
	}
	c.Refused(409, "rotated_lately", "", "POST", path+"/secrets", "")
	c.Refused(409, "rotated_lately", "", "POST", path+"/secrets?force=false", "")
	c.Refused(422, "invalid", "/force", "POST", path+"/secrets?force=yes", "")
	dispatchtest.Get[push.Trial](c, 200, "POST", path+"/test", "")
	if got := r.Last(t).SignedBy(t, first.Secret, second.Secret); got != "yes yes" {
		t.Errorf("after a rotation that was refused, signed by the first and the second: %s", got)
	}
	third := dispatchtest.Get[push.Endpoint](c, 201, "POST", path+"/secrets?force=true", "")
	dispatchtest.Get[push.Endpoint](c, 200, "PUT", path, `{"url": "`+r.URL+`"}`) // a change of the endpoint leaves its secrets
	dispatchtest.Get[push.Trial](c, 200, "POST", path+"/test", "")
	if got := r.Last(t).SignedBy(t, first.Secret, second.Secret, third.Secret); got != "no yes yes" {
		t.Errorf("signed by the first, the second and the third: %s", got)
	}

	reader, rival := s.As("acme", "schedules:read"), s.As("rival", "tenant:admin")
	for _, what := range []string{"/secrets", "/test"} {
		if got := reader.Do("POST", path+what, ""); got.Status != 403 {
			t.Errorf("%s with schedules:read: got %d", what, got.Status)
		}
		rival.Refused(404, "not_found", "", "POST", path+what, "")
		c.Refused(404, "not_found", "", "POST", "/v1/endpoints/none"+what, "")
	}
	if n := len(r.Requests()); n != 3 {
		t.Errorf("%d requests were made", n)
	}
}

func TestAnEndpointIsRotatedAgainAfterAnHour(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	c := s.Operator()
	const path = "/v1/endpoints/e"
	dispatchtest.Get[push.Endpoint](c, 201, "PUT", path, `{"url": "https://example.com/"}`)
	dispatchtest.Get[push.Endpoint](c, 201, "POST", path+"/secrets", "")
	dispatchtest.Get[push.Endpoint](c, 200, "PUT", path, `{"url": "https://example.com/2"}`) // is no rotation
	stored := secrets(h, "e")
	h.Exec(`UPDATE endpoint SET rotated_at = rotated_at - interval '59 minutes'`)
	c.Refused(409, "rotated_lately", "", "POST", path+"/secrets", "")
	if again := secrets(h, "e"); !bytes.Equal(again[0], stored[0]) || !bytes.Equal(again[1], stored[1]) {
		t.Error("it was rotated all the same")
	}
	h.Exec(`UPDATE endpoint SET rotated_at = rotated_at - interval '1 minute'`)
	dispatchtest.Get[push.Endpoint](c, 201, "POST", path+"/secrets", "")
}

func TestARepeatedRotationChangesNothing(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	c := s.Operator()
	dispatchtest.Get[push.Endpoint](c, 201, "PUT", "/v1/endpoints/e", `{"url": "https://example.com/"}`)
	rotate := func() string {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v1/endpoints/e/secrets", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.Token)
		req.Header.Set("Idempotency-Key", "one")
		resp, err := s.Client.Do(req)
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
	stored := secrets(h, "e")
	if second := rotate(); !strings.Contains(first, "whsec_") || strings.Contains(second, "whsec_") {
		t.Errorf("got %s, then %s", first, second)
	}
	if again := secrets(h, "e"); len(again) != 2 || !bytes.Equal(again[0], stored[0]) {
		t.Error("it was rotated again")
	}
	if n := h.Number(`SELECT count(*) FROM idempotency WHERE convert_from(answer, 'UTF8') LIKE '%whsec_%'`); n != 0 {
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
func secrets(h *dispatchtest.Carillon, name string) (stored [][]byte) {
	h.T.Helper()
	if err := h.Pool.QueryRow(h.T.Context(), `SELECT secrets FROM endpoint WHERE tenant_id = $1 AND name = $2`, h.Tenant, name).Scan(&stored); err != nil {
		h.T.Fatal(err)
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

// with is a process of the Carillon that has a keyset.
func with(h *dispatchtest.Carillon, k *keyset.Keyset) *dispatchtest.Process {
	h.T.Helper()
	h.Config.Keyset = k
	return h.Process()
}

func TestSecretsAreSealed(t *testing.T) {
	t.Parallel()
	h, r := dispatchtest.New(t), dispatchtest.NewReceiver(t)
	old := newKeyset(t)
	put := func(d *dispatchtest.Process, name string) string {
		t.Helper()
		e, _, err := d.Pusher.Endpoints.PutEndpoint(t.Context(), h.Tenant, name, push.EndpointParams{URL: r.URL})
		if err != nil {
			t.Fatal(err)
		}
		return e.Secret
	}
	bare, sealing := with(h, nil), with(h, old)

	clear := put(bare, "clear")
	if got := secrets(h, "clear"); !bytes.Equal(got[0], plain(t, clear)) {
		t.Errorf("without a keyset it is stored as %x", got)
	}
	if got := r.Try(h, sealing, "clear", clear); got != "yes" {
		t.Errorf("a secret in the clear signs: %s", got)
	}
	put(sealing, "clear")
	if got := secrets(h, "clear"); bytes.Contains(got[0], plain(t, clear)) {
		t.Error("it is in the clear after it was written again")
	}
	if got := r.Try(h, sealing, "clear", clear); got != "yes" {
		t.Errorf("once sealed it signs: %s", got)
	}

	sealed := put(sealing, "sealed")
	if got := secrets(h, "sealed"); len(got) != 1 || bytes.Contains(got[0], plain(t, sealed)) {
		t.Errorf("it is stored as %x", got)
	}
	fresh, err := old.Rotated()
	if err != nil {
		t.Fatal(err)
	}
	rotated := with(h, fresh)
	if got := r.Try(h, rotated, "sealed", sealed); got != "yes" {
		t.Errorf("with another key first it signs: %s", got)
	}
	put(rotated, "sealed")
	if got := r.Try(h, sealing, "sealed", sealed); got != "" {
		t.Errorf("sealed by the new key, the old keyset opens it: %s", got)
	}
	if got := r.Try(h, bare, "sealed", sealed); got != "" {
		t.Errorf("it opens without a keyset: %s", got)
	}
	report, err := push.Sealings(t.Context(), h.Pool, old)
	if want := (push.Sealing{Sealed: 2, Unreadable: 1}); err != nil || report != want {
		t.Errorf("got %+v, %v, want %+v", report, err, want)
	}

	// What is moved to another endpoint opens no more.
	if _, err := h.Pool.Exec(t.Context(), `UPDATE endpoint SET secrets = (SELECT secrets FROM endpoint WHERE name = 'sealed') WHERE name = 'clear'`); err != nil {
		t.Fatal(err)
	}
	if got := r.Try(h, rotated, "clear", sealed); got != "" {
		t.Errorf("of another endpoint it signs: %s", got)
	}
}

func TestTicksWaitForAKeysetThatIsMissing(t *testing.T) {
	t.Parallel()
	h, r := dispatchtest.New(t), dispatchtest.NewReceiver(t)
	k := newKeyset(t)
	made, _, err := with(h, k).Pusher.Endpoints.PutEndpoint(t.Context(), h.Tenant, "e", push.EndpointParams{URL: r.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Tenant, "w", schedules.WorkflowParams{Endpoint: new("e")}); err != nil {
		t.Fatal(err)
	}
	without := with(h, nil)
	if err := without.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := dispatchtest.EverySecond()
	p.Spec = calendar.Spec{Intervals: []calendar.Interval{{Every: "1s"}}, MaxTicks: new(1)}
	h.Put("w", "k", p)
	dispatchtest.Until(t, "the tick is held without an attempt", func() bool {
		return h.Number(`SELECT count(*) FROM delayed WHERE why = 'endpoint' AND attempt = 1`) == 1
	})
	if err := without.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.Start(with(h, k))
	dispatchtest.Until(t, "it has succeeded", func() bool { return h.Number(`SELECT count(*) FROM tick WHERE state = 2`) == 1 })
	if got := r.Last(t).SignedBy(t, made.Secret); got != "yes" || len(r.Requests()) != 1 && !h.TakenOver(0) {
		t.Errorf("%d requests, signed: %s", len(r.Requests()), got)
	}
}
