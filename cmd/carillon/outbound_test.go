package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/tenants"
)

func TestTheStartSaysWhatOutboundSettingsOpen(t *testing.T) {
	t.Parallel()
	var s outboundSettings
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	s.warn(log)
	if said.Len() > 0 {
		t.Errorf("by default it says %s", &said)
	}
	if err := s.AllowNetworks.UnmarshalText([]byte("10.0.0.0/8, fd00::/8")); err != nil {
		t.Fatal(err)
	}
	if err := s.EgressProxy.UnmarshalText([]byte("http://u:s3cr3t@proxy:4750")); err != nil {
		t.Fatal(err)
	}
	s.AllowHTTP = true
	s.warn(log)
	for _, want := range []string{"CARILLON_ALLOW_NETWORKS", "10.0.0.0/8", "fd00::/8", "CARILLON_ALLOW_HTTP", "CARILLON_EGRESS_PROXY", "proxy:4750"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %s: %s", want, &said)
		}
	}
	if strings.Contains(said.String(), "s3cr3t") {
		t.Errorf("it tells the password: %s", &said)
	}
}

// The settings apply to endpoints and key sets, when they are registered and when they are called.
func TestEndpointsInOwnNetworks(t *testing.T) {
	t.Parallel()
	var settings outboundSettings
	if err := settings.AllowNetworks.UnmarshalText([]byte("127.0.0.0/8")); err != nil {
		t.Fatal(err)
	}
	settings.AllowHTTP = true
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(app.Close)
	s := serveAs(t, func(p *options) { p.outbound = settings.outbound() })
	client, operator, platform := checked(t), s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	for url, want := range map[string]int{app.URL: http.StatusCreated, "http://app.internal:3000/": http.StatusCreated, "http://10.0.0.1/": http.StatusUnprocessableEntity, "http://169.254.169.254/": http.StatusUnprocessableEntity} {
		if status, body := s.send(t, client, operator, "PUT", "/v1/endpoints/e"+strconv.Itoa(len(url)), "application/json", `{"url": `+string(marshal(t, url))+`}`); status != want {
			t.Errorf("endpoint %s: got %d: %s", url, status, body)
		}
		issuer := `{"issuers": [{"issuer": "https://login.example.com", "jwks_uri": ` + string(marshal(t, url)) + `, "algorithms": ["ES256"]}]}`
		if status, body := s.send(t, client, platform, "PUT", "/v1/platform/tenants/t"+strconv.Itoa(len(url)), "application/json", issuer); status != want {
			t.Errorf("jwks_uri %s: got %d: %s", url, status, body)
		}
	}
	status, body := s.send(t, client, operator, "POST", "/v1/endpoints/e"+strconv.Itoa(len(app.URL))+"/test", "application/json", ``)
	if status != http.StatusOK || !strings.Contains(string(body), "204") {
		t.Errorf("a test tick: got %d: %s", status, body)
	}
}
