package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// inward are URLs that lead to a private machine, or did so in some library. PORT is the port of a canary.
var inward = strings.Fields(`
	http://127.0.0.1:PORT/ https://127.0.0.1:PORT/ https://127.0.0.1/ https://127.0.0.1:443/ https://127.0.0.1:8443/ https://127.1/ https://127.0.1/ https://127.000.000.001/
	https://2130706433/ https://0x7f000001/ https://0x7f.0x0.0x0.0x1/ https://0x7f.1/ https://017700000001/ https://0177.0.0.1/ https://0177.0.0.01/ https://127.0.0.0x1/ https://4294967295/ https://6425673729/ https://00000000000000000000000000177.0.0.1/
	https://0/ https://0.0.0.0/ https://0.0.0.0:PORT/ https://0.1.2.3/ https://127.255.255.254/ https://127.0.0.1./ https://localhost/ https://LOCALHOST/ https://localhost./ https://a.localhost/ https://localhost.localdomain/ https://ip6-localhost/
	https://[::1]/ https://[::1]:PORT/ https://[::]/ https://[0:0:0:0:0:0:0:1]/ https://[0000:0000:0000:0000:0000:0000:0000:0001]/ https://[::ffff:127.0.0.1]/ https://[::ffff:7f00:1]/ https://[0:0:0:0:0:ffff:7f00:0001]/ https://[::127.0.0.1]/ https://[::ffff:0:127.0.0.1]/ https://[::1%25lo]/
	https://[64:ff9b::7f00:1]/ https://[64:ff9b::127.0.0.1]/ https://[64:ff9b:1::a00:1]/ https://[2002:7f00:1::]/ https://[2002:a00:1::1]/ https://[2001::1]/ https://[2001:db8::1]/ https://[100::1]/ https://[fc00::1]/ https://[fd00:ec2::254]/ https://[fe80::1]/ https://[fe80::1%25eth0]/ https://[fec0::1]/ https://[ff02::1]/ https://[::ffff:169.254.169.254]/ https://[::ffff:10.0.0.1]/
	https://10.0.0.1/ https://10.255.255.255/ https://172.16.0.1/ https://172.31.255.255/ https://192.168.0.1/ https://169.254.169.254/latest/meta-data/ https://169.254.170.2/ https://2852039166/ https://0xa9fea9fe/ https://0251.0376.0251.0376/ https://100.64.0.1/ https://100.100.100.200/ https://100.127.255.255/ https://168.63.129.16/ https://192.0.0.192/ https://192.0.2.1/ https://198.18.0.1/ https://198.51.100.1/ https://203.0.113.1/ https://224.0.0.1/ https://239.255.255.250/ https://240.0.0.1/ https://255.255.255.255/
	https://metadata.google.internal/ https://metadata/ https://instance-data.ec2.internal/ https://kubernetes.default.svc.cluster.local/ https://db/ https://db.lan/ https://printer.local/ https://router.home.arpa/ https://wiki.corp/ https://wiki.intranet/
	http://example.com/ ftp://example.com/ file:///etc/passwd gopher://127.0.0.1:PORT/_x unix:///var/run/docker.sock javascript:alert(1) data:text/plain,x //127.0.0.1/ /etc/passwd example.com https:example.com https:/example.com https:///example.com https://
	https://example.com:22/ https://example.com:80/ https://example.com:8080/ https://example.com:5432/ https://example.com:0/ https://example.com:65536/ https://example.com:-1/ https://example.com:PORT/ https://example.com:443:443/
	https://user@example.com/ https://user:pass@example.com/ https://example.com@127.0.0.1/ https://127.0.0.1@example.com/ https://example.com%40127.0.0.1/ https://example.com#@127.0.0.1/ https://example.com\@127.0.0.1/ https://example.com/#fragment https://@127.0.0.1/ https://:@example.com/
	https://①②⑦.⓪.⓪.①/ https://127。0。0。1/ https://１２７.0.0.1/ https://ⓛocalhost/ https://127.0.0.1%00.example.com/ https://127.0.0.1%2f@example.com/ https://%31%32%37.0.0.1/ https://example.com%0d%0aHost:x/ https://exa%20mple.com/ https://[127.0.0.1]/ https://[::1/ https://example..com/ https://.example.com/
`)

// No inward URL is accepted for an endpoint or a key set, and none in the database is called.
func TestNothingInwardIsCalled(t *testing.T) {
	t.Parallel()
	var called atomic.Int64
	var ports []string
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue // a machine without IPv6
		}
		canary := &http.Server{ReadHeaderTimeout: time.Second, ConnState: func(net.Conn, http.ConnState) { called.Add(1) }}
		done := make(chan struct{})
		go func() { defer close(done); _ = canary.Serve(l) }()
		t.Cleanup(func() { _ = canary.Close(); <-done })
		ports = append(ports, l.Addr().String()[strings.LastIndexByte(l.Addr().String(), ':')+1:])
	}
	s := serveAs(t, func(p *options) { p.outbound = web.Outbound{} })
	client, operator, platform := checked(t), s.mint(t, "acme", tenants.TenantAdmin), s.mint(t, "", tenants.PlatformAdmin)
	all := []string{"https://" + strings.Repeat("a", 2048) + ".com/", "https://example.com/" + strings.Repeat("x", 2048)}
	for _, u := range inward {
		all = append(all, strings.ReplaceAll(u, "PORT", ports[0]))
	}
	for _, u := range all {
		for _, to := range []struct{ token, path, body string }{
			{operator, "/v1/endpoints/e", `{"url": %s}`},
			{platform, "/v1/platform/tenants/shop", `{"issuers": [{"issuer": "https://login.example.com", "jwks_uri": %s, "algorithms": ["ES256"]}]}`},
		} {
			if status, got := s.send(t, client, to.token, "PUT", to.path, "application/json", fmt.Sprintf(to.body, marshal(t, u))); status != http.StatusUnprocessableEntity {
				t.Errorf("%s was let into %s: %d %.300s", u, to.path, status, got)
			}
		}
	}

	// A name that was public at registration now resolves to this machine.
	s.expect(t, client, operator, "PUT", "/v1/endpoints/e", `{"url": "https://hook.example.com/"}`, 201, "")
	s.expect(t, client, operator, "PUT", "/v1/workflows/w", `{"endpoint": "e"}`, 201, "")
	s.expect(t, client, operator, "PUT", "/v1/workflows/w/schedules/k", `{"spec": {"cron": "0 0 1 1 *"}, "policy": {"overlap": "allow_all"}, "delivery": {"max_attempts": 1}}`, 201, "")
	for i, port := range ports {
		host := []string{"127.0.0.1", "[::1]"}[i]
		if _, err := s.pool.Exec(t.Context(), `UPDATE endpoint SET url = $1`, "http://"+host+":"+port+"/"); err != nil {
			t.Fatal(err)
		}
		tick := s.expect(t, client, operator, "POST", "/v1/workflows/w/schedules/k/trigger", `{}`, 202, "")
		for deadline := time.Now().Add(inTime); ; <-time.After(20 * time.Millisecond) {
			got := s.expect(t, client, operator, "GET", "/v1/ticks/"+fmt.Sprint(tick["tick_id"]), "", 200, "")
			if got["state"] == "failed" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the tick is %s", got["state"])
			}
		}
	}
	if called.Load() != 0 {
		t.Error("the canary was called")
	}
}
