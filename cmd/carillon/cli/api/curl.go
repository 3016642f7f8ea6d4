package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// maxShownBody is how many bytes of a body a printed curl command shows.
const maxShownBody = 4 << 10

// printCurl writes the request as a curl command. The token is in the variable CARILLON_TOKEN, and never in the text.
func (c *Client) printCurl(r *http.Request, body []byte) {
	if c.Curl == nil {
		return
	}
	var line strings.Builder
	line.WriteString("curl")
	if r.Method != http.MethodGet {
		line.WriteString(" -X " + r.Method)
	}
	line.WriteString(" " + quote(r.URL.String()))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		switch name {
		case "Authorization":
			line.WriteString(` -H "Authorization: Bearer $CARILLON_TOKEN"`)
		case "User-Agent":
		default:
			line.WriteString(" -H " + quote(name+": "+r.Header.Get(name)))
		}
	}
	switch {
	case len(body) > maxShownBody:
		line.WriteString(" --data-binary @-")
	case len(body) > 0:
		line.WriteString(" --data-binary " + quote(string(body)))
	}
	fmt.Fprintln(c.Curl, line.String())
}

// quote quotes text for a POSIX shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
