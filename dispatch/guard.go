package dispatch

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"code.dny.dev/ssrf"
	"golang.org/x/net/http/httpguts"

	"github.com/carillonhq/carillon/internal/fault"
)

// isLoopback tells whether a URL's host is this machine by what it says.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// metadata is the address at which Azure answers its machines; it is a public one otherwise.
var metadata = netip.MustParsePrefix("168.63.129.16/32")

// guardian refuses connections to addresses that are not public, at the moment of connecting: a name that was changed
// since it was looked up is caught too.
func (d *Dispatch) guardian() *ssrf.Guardian {
	options := []ssrf.Option{ssrf.WithPorts(443, 8443), ssrf.WithDeniedV4Prefixes(metadata)}
	if d.Loopback {
		options = []ssrf.Option{
			ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(metadata),
			ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.0/8")), ssrf.WithAllowedV6Prefixes(netip.MustParsePrefix("::1/128")),
		}
	}
	return ssrf.New(options...)
}

// checkHost refuses a host that shows by itself that it is not public.
func checkHost(pointer, host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" || ssrf.New(ssrf.WithDeniedV4Prefixes(metadata)).SafeAddr(ip.Unmap()) != nil {
			return fault.Invalid(pointer, "%s is not a public address", host)
		}
		return nil
	}
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	// A last label of digits, or one in hexadecimal, is an address in one of the old ways of writing.
	numeric := last != "" && strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x")
	if numeric || !strings.Contains(name, ".") || slices.Contains([]string{"localhost", "local", "internal", "localdomain", "home", "lan", "corp"}, last) {
		return fault.Invalid(pointer, "%q is not a public host name", host)
	}
	return nil
}

const mostHeaders = 20

// checkHeaders refuses headers that are not a client's to set.
func checkHeaders(headers map[string]string) error {
	if len(headers) > mostHeaders {
		return fault.Invalid("/headers", "%d headers are more than %d", len(headers), mostHeaders)
	}
	var errs []error
	for name, value := range headers {
		pointer := "/headers/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || len(value) > 1024:
			errs = append(errs, fault.Invalid(pointer, "not a header that HTTP allows"))
		case strings.HasPrefix(canonical, "Webhook-"), strings.HasPrefix(canonical, "Proxy-"),
			slices.Contains([]string{"Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade", "Keep-Alive", "User-Agent", "Traceparent"}, canonical):
			errs = append(errs, fault.Invalid(pointer, "%s is set by the service", canonical))
		}
	}
	return fault.Join(errs...)
}
