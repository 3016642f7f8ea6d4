package api

import (
	"net/url"
	"strings"
)

// Request is one request. The zero Method is GET.
type Request struct {
	Method string
	Path   string // escaped, such as Path returns it
	Query  url.Values
	Header map[string]string
	Media  string // of Body; empty: application/json
	Body   []byte // nil: none
}

// Path joins names to an escaped path: Path("v1", "workflows", "a/b") is /v1/workflows/a%2Fb.
func Path(names ...string) string {
	var path strings.Builder
	for _, name := range names {
		path.WriteByte('/')
		switch escaped := url.PathEscape(name); escaped {
		case ".", "..": // servers and proxies remove such segments
			path.WriteString(strings.ReplaceAll(escaped, ".", "%2E"))
		default:
			path.WriteString(escaped)
		}
	}
	return path.String()
}

func (r Request) method() string {
	if r.Method == "" {
		return "GET"
	}
	return r.Method
}

// address returns the URL of the request on a server.
func (r Request) address(base string) string {
	address := strings.TrimRight(base, "/") + r.Path
	if len(r.Query) > 0 {
		address += "?" + r.Query.Encode()
	}
	return address
}

func (r Request) media() string {
	if r.Media == "" {
		return "application/json"
	}
	return r.Media
}
