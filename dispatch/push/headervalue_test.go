package push_test

import (
	"strings"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/push"
)

// The values of headers are sealed and sent, and no answer shows them.
func TestHeaderValuesAreSealedAndWriteOnly(t *testing.T) {
	t.Parallel()
	h, r := dispatchtest.New(t), dispatchtest.NewReceiver(t)
	old := newKeyset(t)
	h.Config.Keyset = old
	c := h.Open(h.Process()).Operator()
	const path = "/v1/endpoints/e"
	put := func(headers string) {
		t.Helper()
		body := `{"url": "` + r.URL + `/hook?token=in-the-url", "headers": ` + headers + `}`
		if got := c.Do("PUT", path, body); got.Status/100 != 2 || strings.Contains(string(got.Body), "credential") || !strings.Contains(string(got.Body), `"Authorization":"…"`) {
			t.Errorf("got %d %s", got.Status, got.Body)
		}
	}
	sent := func(want string) {
		t.Helper()
		dispatchtest.Get[push.Trial](c, 200, "POST", path+"/test", "")
		if got := r.Last(t).Header.Get("Authorization"); got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
	c.Refused(422, "invalid", "/headers/Authorization", "PUT", path, `{"url": "`+r.URL+`", "headers": {"Authorization": "…"}}`)
	put(`{"Authorization": "credential-1"}`)
	sent("credential-1")
	put(`{"Authorization": "…"}`)
	sent("credential-1")
	dispatchtest.Get[push.Endpoint](c, 201, "POST", path+"/secrets", "")
	sent("credential-1")
	for _, got := range []string{string(c.Do("GET", path, "").Body), string(c.Do("GET", "/v1/endpoints", "").Body)} {
		if strings.Contains(got, "credential") || !strings.Contains(got, `"Authorization":"…"`) {
			t.Errorf("got %s", got)
		}
	}
	if n := h.Number(`SELECT count(*) FROM endpoint WHERE headers::text LIKE '%credential%'`); n != 0 {
		t.Error("a value is stored in the clear")
	}
	if n := h.Number(`SELECT count(*) FROM audit WHERE before::text LIKE ANY ('{%credential%,%in-the-url%}') OR after::text LIKE ANY ('{%credential%,%in-the-url%}')`); n != 0 {
		t.Error("the audit shows a credential")
	}

	// A key that is lost holds the endpoint; doctor tells.
	if _, err := with(h, newKeyset(t)).Pusher.Endpoints.TryEndpoint(t.Context(), h.Tenant, "e"); err != nil {
		t.Fatal(err)
	}
	if n := len(r.Requests()); n != 3 {
		t.Errorf("%d requests came, want 3", n)
	}
	report, err := push.Sealings(t.Context(), h.Pool, nil)
	if want := (push.Sealing{Sealed: 3, Unreadable: 3}); err != nil || report != want {
		t.Errorf("got %+v, %v, want %+v", report, err, want)
	}

	// What is stored in the clear is sealed when the endpoint is next written, and opens for no other endpoint.
	if _, err := h.Pool.Exec(t.Context(), `UPDATE endpoint SET headers = '{"Authorization": "credential-2"}'`); err != nil {
		t.Fatal(err)
	}
	sent("credential-2")
	put(`{"Authorization": "…"}`)
	sent("credential-2")
	if n := h.Number(`SELECT count(*) FROM endpoint WHERE headers::text LIKE '%credential%'`); n != 0 {
		t.Error("a value is stored in the clear still")
	}
}
