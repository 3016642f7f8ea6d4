package web

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"code.dny.dev/ssrf"
)

// Outbound says which addresses that a client named we call. The zero value allows public ones by https on ports 443
// and 8443; Loopback allows this machine too, by http and on any port, for development.
type Outbound struct {
	Loopback bool
}

// maxURL is how many bytes a URL has at most.
const maxURL = 2048

// guard refuses what is not a public address. Azure's host is one that looks public, and is not.
var guard = ssrf.New(
	ssrf.WithPorts(443, 8443),
	ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("224.0.0.0/4")),
	ssrf.WithDeniedV6Prefixes(netip.MustParsePrefix("2002::/16")),
)

// Check refuses a URL for what it shows by itself, before any name is looked up. The error is for whoever sent it.
func (o Outbound) Check(raw string) error {
	if len(raw) > maxURL {
		return fmt.Errorf("must be at most %d characters", maxURL)
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return errors.New("must not hold blanks or control characters")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Opaque != "" || u.Hostname() == "" {
		return errors.New("must be a whole URL such as https://example.com/path")
	}
	if u.User != nil {
		return errors.New("must not hold a user or password")
	}
	if u.Fragment != "" {
		return errors.New("must not have a fragment")
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	addr, literal := netip.ParseAddr(host)
	local := host == "localhost" || strings.HasSuffix(host, ".localhost") || literal == nil && addr.Unmap().IsLoopback()
	if local {
		if !o.Loopback {
			return errors.New("must be a public address")
		}
		if u.Scheme != "http" && u.Scheme != "https" {
			return errors.New("must be http or https")
		}
		return nil
	}
	if u.Scheme != "https" {
		return errors.New("must be https")
	}
	if p := u.Port(); p != "" && p != "443" && p != "8443" {
		return errors.New("must be on port 443 or 8443")
	}
	if literal != nil && (len(host) > 253 || !hostname.MatchString(host)) {
		return errors.New("must name a host in ASCII: an international name is written as xn--…")
	}
	if literal == nil && guard.SafeAddr(addr) != nil || literal != nil && (numeric(host) || private(host)) {
		return errors.New("must be a public address")
	}
	return nil
}

// hostname is what a name on the network looks like (RFC 1123 section 2.1, and the underscore that some use). Other
// scripts have letters that become digits and dots once a name is looked up, so an international name comes as xn--….
var hostname = regexp.MustCompile(`^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$`)

// private reports whether a name is one that no public resolver knows: a single label, or one below a name that is kept
// for networks of one's own (RFC 6762, RFC 8375, ICANN's .internal).
func private(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last == host || strings.HasSuffix(host, ".home.arpa") ||
		slices.Contains([]string{"local", "internal", "localdomain", "home", "lan", "corp", "intranet"}, last)
}

// numeric reports whether some resolvers would take a name for an address: 127.1, 0x7f000001.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || last == "" || strings.Trim(last, "0123456789") == ""
}

// Client returns a client that looks at each address again when it connects, so that a name which changes its mind is
// caught. It knows no proxy, follows no redirect, speaks HTTP/1.1, and an exchange takes at most that long.
func (o Outbound) Client(timeout time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: min(timeout, 5*time.Second), Control: o.Control}
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    min(timeout, 5*time.Second),
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost:    16,
			IdleConnTimeout:        90 * time.Second,
		},
	}
}

// Control refuses, as a net.Dialer's, a connection to an address that is not allowed. It sees what a name stands for at
// the moment of connecting.
func (o Outbound) Control(network, address string, c syscall.RawConn) error {
	if o.Loopback {
		if a, err := netip.ParseAddrPort(address); err == nil && a.Addr().Unmap().IsLoopback() {
			return nil
		}
	}
	return guard.Safe(network, address, c)
}
