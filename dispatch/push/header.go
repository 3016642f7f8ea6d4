package push

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carillonhq/carillon/internal/fault"
	"golang.org/x/net/http/httpguts"
)

const mostHeaders = 20

// checkHeaders returns the faults of headers that a client may not set.
func checkHeaders(headers map[string]string) error {
	if len(headers) > mostHeaders {
		return fault.Invalid("/headers", "%d headers are more than %d", len(headers), mostHeaders)
	}
	var errs []error
	seen := map[string]bool{}
	for name, value := range headers {
		pointer := headerPointer(name)
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || len(value) > 1024:
			errs = append(errs, fault.Invalid(pointer, "not a header that HTTP allows"))
		case strings.HasPrefix(canonical, "Webhook-"), strings.HasPrefix(canonical, "Proxy-"),
			slices.Contains([]string{"Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "Te", "Trailer", "Upgrade", "Keep-Alive", "User-Agent", "Traceparent", "Content-Encoding", "Expect"}, canonical):
			errs = append(errs, fault.Invalid(pointer, "%s is set by the service", canonical))
		case seen[canonical]:
			errs = append(errs, fault.Invalid(pointer, "%s is given twice: header names are case-insensitive", canonical))
		}
		seen[canonical] = true
	}
	return fault.Join(errs...)
}
