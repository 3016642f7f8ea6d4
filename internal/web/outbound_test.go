package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
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

func TestOutboundClientLooksAgainWhenItConnects(t *testing.T) {
	t.Parallel()
	called := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called++
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer s.Close()
	c := Outbound{}.Client(time.Second)
	if r, err := c.Get(s.URL); err == nil {
		r.Body.Close()
		t.Error("called this machine")
	}
	if called != 0 {
		t.Error("the request arrived")
	}
	open := Outbound{Loopback: true}.Client(time.Second)
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
