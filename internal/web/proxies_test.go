package web

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestOnlyTrustedProxiesSayWhoAsks(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		trusted            []netip.Prefix
		peer, header, want string
	}{
		{nil, "10.0.0.1:9", "203.0.113.7", "10.0.0.1"},
		{trusted, "10.0.0.1:9", "203.0.113.7", "203.0.113.7"},
		{trusted, "[fd00::1]:9", "203.0.113.7, 10.0.0.2", "203.0.113.7"},
		{trusted, "10.0.0.1:9", "198.51.100.1, 203.0.113.7", "203.0.113.7"},
		{trusted, "192.168.0.1:9", "203.0.113.7", "192.168.0.1"},
		{trusted, "127.0.0.1:9", "203.0.113.7", "127.0.0.1"},
		{trusted, "10.0.0.1:9", "nonsense", "10.0.0.1"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		r.Header.Set("X-Forwarded-For", c.header)
		if got := clientAddress(c.trusted)(r); got != c.want {
			t.Errorf("from %s with %q: got %s, want %s", c.peer, c.header, got, c.want)
		}
	}
}
