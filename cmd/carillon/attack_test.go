package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/carillonhq/carillon/api"
	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/tenants"
)

// attacked is an operation of the document, as an attacker sees it.
type attacked struct {
	id, method, path string
	scopes           []string            // it needs one of them; none: any token, or no token if it is public
	public           bool                // it needs no token
	params           openapi3.Parameters // of path, query and header
	media            string              // of its body; empty: it has none
	bodies           []any               // the document's examples of its body
}

// documented returns all operations of the document that the API serves, in the order of their names.
func documented(t *testing.T) []attacked {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(api.Document)
	if err != nil {
		t.Fatal(err)
	}
	var all []attacked
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if path == "/metrics" { // it has a listener of its own
				continue
			}
			a := attacked{id: op.OperationID, method: method, path: path, params: append(slices.Clone(item.Parameters), op.Parameters...)}
			security := doc.Security
			if op.Security != nil {
				security = *op.Security
			}
			a.public = len(security) == 0
			for _, s := range security {
				for _, scopes := range s {
					a.scopes = append(a.scopes, scopes...)
				}
			}
			if op.RequestBody != nil {
				for media, content := range op.RequestBody.Value.Content {
					a.media = media
					if content.Example != nil {
						a.bodies = append(a.bodies, content.Example)
					}
					for _, name := range slices.Sorted(maps.Keys(content.Examples)) {
						a.bodies = append(a.bodies, content.Examples[name].Value.Value)
					}
				}
			}
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b attacked) int { return cmp.Compare(a.id, b.id) })
	return all
}

// platform reports whether the operation is for the operator of the service.
func (a attacked) platform() bool { return slices.Contains(a.scopes, tenants.PlatformAdmin) }

// fill returns the operation's path with values of its parameters, escaped.
func (a attacked) fill(values map[string]string) string {
	path := a.path
	for name, value := range values {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	return path
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

// ask sends a request. It reports false if the answer takes longer than patience.
func (s whole) ask(t *testing.T, client *http.Client, token, method, path string, header http.Header, body []byte, patience time.Duration) (answer, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	maps.Copy(req.Header, header)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	start := time.Now()
	resp, err := client.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return answer{}, false
	}
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return answer{}, false
	}
	defer resp.Body.Close()
	var got []byte
	if apitest.IsEventStream(resp.Header) {
		got, err = apitest.FirstEvent(bufio.NewReader(resp.Body))
	} else {
		got, err = io.ReadAll(resp.Body)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return answer{}, false
	}
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return answer{}, false
	}
	return answer{resp.StatusCode, resp.Header, got, time.Since(start)}, true
}

// lined returns the lines of an NDJSON example, which is a text or the object of one line.
func lined(t *testing.T, example any) []any {
	t.Helper()
	text, ok := example.(string)
	if !ok {
		return []any{example}
	}
	var all []any
	for _, raw := range strings.Split(strings.TrimSpace(text), "\n") {
		var v any
		if err := json.Unmarshal([]byte(raw), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}
