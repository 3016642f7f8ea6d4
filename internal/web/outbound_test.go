package web

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"code.dny.dev/ssrf"
)

func TestOutboundCheck(t *testing.T) {
	t.Parallel()
	good := []string{"https://example.com", "https://example.com/hook?x=1", "https://example.com:8443/", "https://93.184.216.34/", "https://[2606:4700::1111]/", "https://a.b.c.example./", "https://xn--bcher-kva.example/", "https://a_b.example/"}
	bad := []string{
		"", "example.com", "/path", "https:///x", "https:example.com", "http://example.com", "ftp://example.com", "https://example.com:80/", "https://example.com:22/",
		"https://user@example.com/", "https://u:p@example.com/", "https://example.com/#f", "https://" + strings.Repeat("x", 2048) + ".com",
		"https://localhost/", "https://LOCALHOST./", "https://x.localhost/", "https://127.0.0.1/", "https://127.9.9.9/", "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::]/",
		"https://0.0.0.0/", "https://10.0.0.1/", "https://172.16.0.1/", "https://192.168.1.1/", "https://169.254.169.254/latest", "https://100.64.0.1/", "https://168.63.129.16/",
		"https://224.0.0.1/", "https://255.255.255.255/", "https://[fe80::1]/", "https://[fe80::1%25eth0]/", "https://[fd00::1]/", "https://[64:ff9b::7f00:1]/", "https://[2002:7f00:1::]/", "https://[ff02::1]/",
		"https://intranet/", "https://db.internal/", "https://printer.local/", "https://metadata.google.internal/", "https://router.home.arpa/",
		"https://127.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://example.0x7f/",
		"https://①②⑦.⓪.⓪.①/", "https://a..example/", "https://.example.com/", "https://bücher.example/",
		"https://example.com/ ", " https://example.com/", "https://example.com/a b", "https://example.com/\u00a0", "https://exa\nmple.com/", "https://example.com/\t", "ht\ttps://example.com/", "https://example.com/\x7f",
	}
	for _, u := range good {
		if err := (Outbound{}).Check(u); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, u := range bad {
		if err := (Outbound{}).Check(u); err == nil {
			t.Errorf("%s was let pass", u)
		}
	}
	for _, u := range []string{"http://127.0.0.1:8080/x", "http://localhost:1/", "https://[::1]:9/"} {
		if err := (Outbound{Loopback: true}).Check(u); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, u := range []string{"http://10.0.0.1/", "http://169.254.169.254/", "ftp://localhost/", "http://example.com/"} {
		if err := (Outbound{Loopback: true}).Check(u); err == nil {
			t.Errorf("%s was let pass", u)
		}
	}
}

// An installation may open its own networks. Metadata services stay closed.
func TestOutboundCheckOfOwnNetworks(t *testing.T) {
	t.Parallel()
	own := Outbound{Networks: prefixes("10.0.0.0/8", "fd00::/8", "169.254.0.0/16", "168.63.0.0/16", "64:ff9b::/96"), HTTP: true}
	for _, u := range []string{
		"http://10.1.2.3:3000/hook", "https://10.1.2.3/", "http://[fd00::1]:8080/", "http://app:3000/", "http://app.internal:3000/", "https://app.corp/",
		"http://93.184.216.34/", "https://example.com:8443/", "http://example.com/",
	} {
		if err := own.Check(u); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	for _, u := range []string{
		"http://169.254.169.254/", "http://169.254.170.2/", "http://168.63.129.16/", "http://[fd00:ec2::254]/", "http://[::ffff:169.254.169.254]/", "http://[64:ff9b::a9fe:a9fe]/",
		"http://192.168.1.1/", "http://127.0.0.1/", "http://localhost/", "http://93.184.216.34:3000/", "ftp://10.1.2.3/", "http://u@10.1.2.3/", "http://0x0a010203/", "http://10.1/",
	} {
		if err := own.Check(u); err == nil {
			t.Errorf("%s was let pass", u)
		}
	}
	if err := (Outbound{Networks: own.Networks}).Check("http://10.1.2.3/"); err == nil {
		t.Error("http was let pass where only networks are allowed")
	}
	if err := (Outbound{HTTP: true}).Check("http://app:3000/"); err == nil {
		t.Error("a private name was let pass where only http is allowed")
	}
}

// The dialer checks the resolved address, whatever the name is.
func TestOutboundDialsOwnNetworks(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	defer s.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	open := Outbound{Networks: prefixes("127.0.0.0/8"), HTTP: true}.Client(5 * time.Second)
	defer open.CloseIdleConnections()
	for _, u := range []string{s.URL, "http://localhost:" + port} {
		r, err := open.Get(u)
		if err != nil {
			t.Errorf("%s: %v", u, err)
			continue
		}
		r.Body.Close()
		if r.StatusCode != http.StatusTeapot {
			t.Errorf("%s: got %d", u, r.StatusCode)
		}
	}
	if r, err := (Outbound{Networks: prefixes("10.0.0.0/8"), HTTP: true}).Client(time.Minute).Get(s.URL); !errors.Is(err, ssrf.ErrProhibitedPort) && !errors.Is(err, ssrf.ErrProhibitedIP) {
		t.Errorf("outside the networks: got %v, %v", r, err)
	}
	all := Outbound{Networks: prefixes("0.0.0.0/0", "::/0"), HTTP: true}
	for _, address := range []string{
		"169.254.169.254:80", "168.63.129.16:80", "100.100.100.200:80", "[fd00:ec2::254]:80", "[fe80::1%eth0]:80", "[2002:a9fe:a9fe::]:80", "[64:ff9b::a9fe:a9fe]:80", "[::ffff:169.254.169.254]:80",
	} {
		if err := all.Control("tcp4", address, nil); !errors.Is(err, ssrf.ErrProhibitedIP) {
			t.Errorf("%s: got %v", address, err)
		}
	}
	if err := all.Control("tcp4", "10.0.0.1:5432", nil); err != nil {
		t.Error(err)
	}
}

// A proxy gets all requests, but for those whose URL shows a forbidden address.
func TestOutboundGoesThroughTheProxy(t *testing.T) {
	t.Parallel()
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Host)
		w.WriteHeader(http.StatusTeapot)
	}))
	defer s.Close()
	proxy, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := Outbound{Proxy: proxy, HTTP: true}.Client(5 * time.Second)
	defer c.CloseIdleConnections()
	for _, u := range []string{"http://example.com/", "https://example.com/", "http://169.254.169.254/", "http://10.0.0.1/", "http://localhost/"} {
		if r, err := c.Get(u); err == nil {
			r.Body.Close()
		}
	}
	if want := []string{"GET example.com", "CONNECT example.com:443"}; !slices.Equal(asked, want) {
		t.Errorf("the proxy got %q, want %q", asked, want)
	}
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestOutboundClientLooksAgainWhenItConnects(t *testing.T) {
	t.Parallel()
	called := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called++
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer s.Close()
	c := Outbound{}.Client(time.Minute)
	if r, err := c.Get(s.URL); err == nil {
		r.Body.Close()
		t.Error("called this machine")
	}
	if called != 0 {
		t.Error("the request arrived")
	}
	open := Outbound{Loopback: true}.Client(time.Minute)
	defer open.CloseIdleConnections()
	r, err := open.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusFound || called != 1 {
		t.Errorf("got %d after %d calls", r.StatusCode, called)
	}
}
