package push_test

import (
	"strings"
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/schedules"
)

func TestEndpointsOverHTTP(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	s := h.Open(h.Dispatch)
	c := s.Operator()
	made := dispatchtest.Get[push.Endpoint](c, 201, "PUT", "/v1/endpoints/mailer", `{"url": "https://mailer.example.com/ticks", "headers": {"X-Team": "growth"}}`)
	if !strings.HasPrefix(made.Secret, "whsec_") || made.Batch != 1 || made.State != "enabled" || made.Headers["X-Team"] != "…" {
		t.Errorf("got %+v", made)
	}
	changed := dispatchtest.Get[push.Endpoint](c, 200, "PUT", "/v1/endpoints/mailer", `{"url": "https://mailer.example.com:8443/", "batch": 500, "state": "held"}`)
	if changed.Secret != "" || changed.Batch != 500 || changed.State != "held" || len(changed.Headers) != 0 || !changed.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("got %+v", changed)
	}
	if got := dispatchtest.Get[push.Endpoint](c, 200, "GET", "/v1/endpoints/mailer", ""); got.Secret != "" || got.URL != changed.URL {
		t.Errorf("got %+v", got)
	}
	dispatchtest.Get[push.Endpoint](c, 201, "PUT", "/v1/endpoints/other", `{"url": "https://93.184.216.34/"}`)
	type list struct {
		Items      []push.Endpoint
		NextCursor *string `json:"next_cursor"`
	}
	first := dispatchtest.Get[list](c, 200, "GET", "/v1/endpoints?limit=1", "")
	if len(first.Items) != 1 || first.Items[0].Name != "mailer" || first.NextCursor == nil {
		t.Fatalf("got %+v", first)
	}
	if rest := dispatchtest.Get[list](c, 200, "GET", "/v1/endpoints?limit=1&cursor="+*first.NextCursor, ""); len(rest.Items) != 1 || rest.Items[0].Name != "other" || rest.NextCursor != nil {
		t.Errorf("got %+v", rest)
	}

	rival := s.As("rival", "tenant:admin")
	rival.Refused(422, "invalid_cursor", "/cursor", "GET", "/v1/endpoints?cursor="+*first.NextCursor, "")
	rival.Refused(404, "not_found", "", "GET", "/v1/endpoints/mailer", "")
	rival.Refused(404, "not_found", "", "DELETE", "/v1/endpoints/mailer", "")
	if got := dispatchtest.Get[list](rival, 200, "GET", "/v1/endpoints", ""); len(got.Items) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}

	if _, _, err := h.Schedules.PutWorkflow(t.Context(), h.Tenant, "w", schedules.WorkflowParams{Endpoint: new("mailer")}); err != nil {
		t.Fatal(err)
	}
	c.Refused(409, "endpoint_in_use", "", "DELETE", "/v1/endpoints/mailer", "")
	if a := c.Do("DELETE", "/v1/endpoints/other", ""); a.Status != 204 {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
	c.Refused(404, "not_found", "", "DELETE", "/v1/endpoints/other", "")
	c.Refused(404, "not_found", "", "GET", "/v1/endpoints/other", "")
}

// A PUT that says nothing of the state leaves it: what an operator holds, or what a 410 disabled, is not enabled by it.
func TestAPUTWithoutAStateLeavesIt(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	for _, state := range []string{"enabled", "held", "disabled"} {
		if a := c.Do("PUT", "/v1/endpoints/e", `{"url": "https://example.com/", "state": "`+state+`"}`); a.Status/100 != 2 {
			t.Fatalf("got %d %s", a.Status, a.Body)
		}
		if e := dispatchtest.Get[push.Endpoint](c, 200, "PUT", "/v1/endpoints/e", `{"url": "https://example.com/new"}`); e.State != state || e.URL != "https://example.com/new" {
			t.Errorf("got %+v, want the state %s", e, state)
		}
	}
	if e := dispatchtest.Get[push.Endpoint](c, 201, "PUT", "/v1/endpoints/new", `{"url": "https://example.com/"}`); e.State != "enabled" {
		t.Errorf("a new endpoint is %s", e.State)
	}
}

func TestEndpointsAreChecked(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Config.Outbound.Loopback = false
	c := h.Open(h.Process()).Operator()
	for _, url := range []string{
		"", "mailer", "/ticks", "https://", "ftp://example.com/", "http://example.com/", "https://example.com:80/", "https://example.com:9200/",
		"https://user:secret@example.com/", "https://user@example.com/", "https://example.com/#here", "https://example.com/" + strings.Repeat("x", 2048),
		"https://127.0.0.1/", "https://127.0.0.1:8443/", "https://localhost/", "https://LOCALHOST./", "https://x.localhost/", "https://0.0.0.0/", "https://10.0.0.1/", "https://172.16.0.1/",
		"https://192.168.1.1/", "https://100.64.0.1/", "https://169.254.169.254/latest/meta-data", "https://168.63.129.16/", "https://224.0.0.1/", "https://240.0.0.1/",
		"https://[::1]/", "https://[::]/", "https://[fe80::1]/", "https://[fe80::1%25eth0]/", "https://[fd00::1]/", "https://[ff02::1]/",
		"https://[::ffff:127.0.0.1]/", "https://[::ffff:10.0.0.1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://[fd00:ec2::254]/",
		"https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://127.1/", "https://intranet/", "https://db.internal/", "https://printer.local/",
		"https://metadata.google.internal/", "https://router.home.arpa/",
	} {
		c.Refused(422, "invalid", "/url", "PUT", "/v1/endpoints/e", `{"url": "`+url+`"}`)
	}
	const url = `{"url": "https://example.com/", `
	for body, pointer := range map[string]string{
		url + `"batch": 0}`:                               "/batch",
		url + `"batch": 501}`:                             "/batch",
		url + `"state": "asleep"}`:                        "/state",
		url + `"headers": {"Webhook-Id": "x"}}`:           "/headers/Webhook-Id",
		url + `"headers": {"host": "x"}}`:                 "/headers/host",
		url + `"headers": {"X-A": "a\nb"}}`:               "/headers/X-A",
		url + `"headers": {"X A": "a"}}`:                  "/headers/X A",
		url + `"events": ["tick.fired"]}`:                 "/events/0",
		`{"url": "http://10.0.0.1/", "batch": 0}`:         "/url /batch",
		`{"url": "https://example.com/", "state": "off"}`: "/state",
	} {
		c.Refused(422, "invalid", pointer, "PUT", "/v1/endpoints/e", body)
	}
	c.Refused(422, "invalid", "/name", "PUT", "/v1/endpoints/no%20name", `{"url": "https://example.com/"}`)
	c.Refused(400, "unknown_field", "/secret", "PUT", "/v1/endpoints/e", url+`"secret": "x"}`)
	c.Refused(404, "not_found", "", "GET", "/v1/endpoints/e", "")
}
