package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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

// Outbound is the policy for requests to URLs that clients name. The zero value allows public addresses by https on ports 443 and
// 8443. It never allows cloud metadata services.
type Outbound struct {
	Loopback bool           // also allows this machine, by http and on any port: for development
	Networks []netip.Prefix // also allows these addresses, on any port
	HTTP     bool           // also allows http, for public addresses on port 80
	Proxy    *url.URL       // sends requests through this HTTP proxy, which resolves names and checks their addresses
}

// maxURL is the maximum length of a URL in bytes.
const maxURL = 2048

// guard refuses addresses that are not public.
var guard = ssrf.New(ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("224.0.0.0/4")), ssrf.WithDeniedV6Prefixes(sixToFour))

// Check returns an error if the policy forbids the URL. It resolves no name. The error's text may be shown to the client.
func (o Outbound) Check(raw string) error {
	if len(raw) > maxURL {
		return fmt.Errorf("must be at most %d characters", maxURL)
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return errors.New("must not contain blanks or control characters")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Opaque != "" || u.Hostname() == "" {
		return errors.New("must be an absolute URL such as https://example.com/path")
	}
	if u.User != nil {
		return errors.New("must not contain a user or password")
	}
	if u.Fragment != "" {
		return errors.New("must not have a fragment")
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return o.checkAddress(u, addr)
	}
	return o.checkName(u, host)
}

var errNotPublic = errors.New("must be a public address")

func (o Outbound) checkAddress(u *url.URL, addr netip.Addr) error {
	addr = addr.Unmap()
	switch {
	case addr.IsLoopback() && o.Loopback:
		return checkScheme(u, true)
	case metadata(addr):
		return errNotPublic
	case o.within(addr):
		return checkScheme(u, o.HTTP)
	case guard.SafeAddr(addr) != nil:
		return errNotPublic
	}
	return cmp.Or(checkScheme(u, o.HTTP), o.checkPort(u))
}

// checkName checks a host name without resolving it. If networks are allowed, the name may resolve to an address in them, so every
// port passes here; Control checks the address later.
func (o Outbound) checkName(u *url.URL, host string) error {
	local := host == "localhost" || strings.HasSuffix(host, ".localhost")
	switch {
	case local && o.Loopback:
		return checkScheme(u, true)
	case local && !o.within(netip.MustParseAddr("127.0.0.1")) && !o.within(netip.IPv6Loopback()):
		return errNotPublic
	case len(host) > 253 || !hostname.MatchString(host):
		return errors.New("must have a host name in ASCII: write an international name as xn--…")
	case numeric(host) || private(host) && len(o.Networks) == 0:
		return errNotPublic
	case len(o.Networks) > 0:
		return checkScheme(u, o.HTTP)
	}
	return cmp.Or(checkScheme(u, o.HTTP), o.checkPort(u))
}

func checkScheme(u *url.URL, plain bool) error {
	switch {
	case u.Scheme == "https" || plain && u.Scheme == "http":
		return nil
	case plain:
		return errors.New("must be http or https")
	}
	return errors.New("must be https")
}

func (o Outbound) checkPort(u *url.URL) error {
	p := u.Port()
	if p == "" || p == "443" || p == "8443" || o.HTTP && p == "80" {
		return nil
	}
	if o.HTTP {
		return errors.New("must be on port 80, 443 or 8443")
	}
	return errors.New("must be on port 443 or 8443")
}

// hostname matches host names (RFC 1123 section 2.1, and also underscores). It matches ASCII only: some letters of other scripts turn
// into digits and dots when a name is resolved. An international name is written as xn--….
var hostname = regexp.MustCompile(`^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$`)

// private reports whether a name is unknown to public resolvers: a single label, or a name below a domain that is reserved for private
// networks (RFC 6762, RFC 8375, ICANN's .internal).
func private(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last == host || strings.HasSuffix(host, ".home.arpa") ||
		slices.Contains([]string{"local", "internal", "localdomain", "home", "lan", "corp", "intranet"}, last)
}

// numeric reports whether some resolvers would read a name as an address, such as 127.1 or 0x7f000001.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || last == "" || strings.Trim(last, "0123456789") == ""
}

// Client returns an HTTP/1.1 client that checks each address again when it connects, because the address of a name can change. It
// follows no redirect. A request with its answer takes at most timeout.
func (o Outbound) Client(timeout time.Duration) *http.Client {
	dialer := &net.Dialer{Timeout: min(timeout, 5*time.Second), Control: o.Control}
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  o.ProxyFor,
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    min(timeout, 5*time.Second),
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConnsPerHost:    16,
			IdleConnTimeout:        90 * time.Second,
		},
	}
}

// Reader returns a function that reads the body of a URL over a new connection. A status other than 200, or a body of more than most
// bytes, is an error.
func (o Outbound) Reader(timeout time.Duration, most int64) func(ctx context.Context, url string) ([]byte, error) {
	client := o.Client(timeout)
	return func(ctx context.Context, url string) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		r.Close = true
		answer, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("the answer has status %d", answer.StatusCode)
		}
		b, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
		if err == nil && int64(len(b)) > most {
			err = fmt.Errorf("the answer is larger than %d bytes", most)
		}
		return b, err
	}
}

// ProxyFor returns the proxy of a request, or nil; it is the Proxy of an http.Transport. Control does not see the addresses that a
// proxy connects to, so ProxyFor checks the URL.
func (o Outbound) ProxyFor(r *http.Request) (*url.URL, error) {
	if o.Proxy == nil {
		return nil, nil
	}
	if err := o.Check(r.URL.String()); err != nil {
		return nil, fmt.Errorf("%w: %w", ssrf.ErrProhibitedIP, err)
	}
	return o.Proxy, nil
}

// Control returns an error for a connection to a forbidden address; it is the Control of a net.Dialer. It checks the resolved address
// at connect time. Connections to the proxy are always allowed.
func (o Outbound) Control(network, address string, _ syscall.RawConn) error {
	if o.Proxy != nil {
		return nil
	}
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: %s", ssrf.ErrProhibitedNetwork, network)
	}
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ssrf.ErrInvalidHostPort, address)
	}
	addr := a.Addr().Unmap()
	switch {
	case addr.IsLoopback() && o.Loopback:
		return nil
	case metadata(addr):
		return fmt.Errorf("%w: %s belongs to a metadata service", ssrf.ErrProhibitedIP, addr)
	case o.within(addr):
		return nil
	case a.Port() != 443 && a.Port() != 8443 && (!o.HTTP || a.Port() != 80):
		return fmt.Errorf("%w: %d", ssrf.ErrProhibitedPort, a.Port())
	}
	return guard.SafeAddr(a.Addr())
}

// within reports whether an address is in the allowed networks.
func (o Outbound) within(addr netip.Addr) bool {
	addr = addr.WithZone("")
	return slices.ContainsFunc(o.Networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}
