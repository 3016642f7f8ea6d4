// Package apitest holds the service, and its SDK, to the OpenAPI document: every answer of an HTTP test is checked by
// [Transport], the router's table by [Routes], and the structs that become JSON by [Struct].
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/carillonhq/carillon/api"
)

// Contract is the document, ready to check answers against. It is safe for concurrent use.
type Contract struct {
	doc     *openapi3.T
	plain   *openapi3.T // doc, but with the version 3.0: see withoutBody
	schemas *schemas
}

// load reads the document once a process; its examples must fit its schemas.
var load = sync.OnceValues(func() (*Contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.Document)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		return nil, err
	}
	schemas, err := compileSchemas(doc)
	plain := *doc
	plain.OpenAPI = "3.0.3"
	return &Contract{doc, &plain, schemas}, err
})

// New returns the contract. A document that is not sound ends the test.
func New(t testing.TB) *Contract {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return c
}

// Check reports an answer that the document does not allow: its status, headers, media type, body or error code. Where
// the answer is 2xx the request must be allowed, too. A request to a path or with a method that the document does not
// have must be answered with the problem document of a 404 or 405.
func (c *Contract) Check(t testing.TB, req *http.Request, reqBody []byte, resp *http.Response, respBody []byte) {
	t.Helper()
	if err := c.check(req, reqBody, resp, respBody); err != nil {
		t.Errorf("%s %s was answered %d, which openapi.yaml does not allow: %v\n%.2000s", req.Method, req.URL.EscapedPath(), resp.StatusCode, err, respBody)
	}
}

func (c *Contract) check(req *http.Request, reqBody []byte, resp *http.Response, respBody []byte) error {
	route, params := c.find(req.Method, req.URL.EscapedPath())
	if route == nil {
		return c.noRoute(resp, respBody)
	}
	request := &openapi3filter.RequestValidationInput{
		Request: withBody(req, reqBody), PathParams: params, Route: route,
		Options: &openapi3filter.Options{
			AuthenticationFunc:  openapi3filter.NoopAuthenticationFunc,
			SkipSettingDefaults: true,
			ExcludeRequestBody:  req.Header.Get("Content-Encoding") != "",
		},
	}
	if resp.StatusCode < 300 {
		if err := c.request(request, reqBody); err != nil {
			return fmt.Errorf("it was done for a request that is not in it: %w", err)
		}
	}
	documented := route.Operation.Responses.Status(resp.StatusCode)
	if documented == nil {
		return errors.New("the status is not in it")
	}
	if err := c.response(request, documented.Value, resp, respBody); err != nil {
		return err
	}
	code, err := problem(documented.Value, resp, respBody)
	if err != nil {
		return err
	}
	return provoke(route.Operation, documented, resp.StatusCode, code)
}

func (c *Contract) request(in *openapi3filter.RequestValidationInput, body []byte) error {
	documented := in.Route.Operation.RequestBody
	if documented != nil && len(body) > 0 {
		if ref, ok := named(documented.Value.Content, in.Request.Header); ok {
			if media, _, _ := mime.ParseMediaType(in.Request.Header.Get("Content-Type")); media != ndjson { // bad lines are answered one by one
				if err := c.schemas.check(ref, body); err != nil {
					return err
				}
			}
			in.Options.ExcludeRequestBody = true
		}
	}
	if documented == nil || in.Options.ExcludeRequestBody {
		in.Route = c.withoutBody(in.Route)
	}
	return openapi3filter.ValidateRequest(context.Background(), in)
}

// withoutBody returns a route for a check of parameters and headers only. The route's document has the version 3.0, because kin-openapi compiles
// a schema for each value if the version is 3.1. Version 3.0 has all keywords that our parameters and headers use.
func (c *Contract) withoutBody(route *routers.Route) *routers.Route {
	plain := *route
	plain.Spec = c.plain
	return &plain
}

func (c *Contract) response(request *openapi3filter.RequestValidationInput, documented *openapi3.Response, resp *http.Response, body []byte) error {
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: request, Status: resp.StatusCode, Header: resp.Header,
		Options: &openapi3filter.Options{ExcludeResponseBody: !bodyChecked(documented, resp)},
	}
	in.SetBodyBytes(body)
	if ref, ok := named(documented.Content, resp.Header); ok {
		if err := c.schemas.checkBody(ref, resp.Header, body); err != nil {
			return err
		}
		in.Options.ExcludeResponseBody = true
	}
	if len(documented.Content) == 0 && len(body) > 0 {
		return errors.New("there is a body")
	}
	if in.Options.ExcludeResponseBody || len(documented.Content) == 0 {
		headersOf := *request
		headersOf.Route = c.withoutBody(request.Route)
		in.RequestValidationInput = &headersOf
	}
	return openapi3filter.ValidateResponse(context.Background(), in)
}

// bodyChecked reports whether the document says more of a body than its media type, which alone is then compared. The description of a
// stream of events is a text for people.
func bodyChecked(documented *openapi3.Response, resp *http.Response) bool {
	if IsEventStream(resp.Header) {
		return false
	}
	media := documented.Content.Get(resp.Header.Get("Content-Type"))
	return media == nil || media.Schema != nil
}

// noRoute checks the answer to what the document does not have.
func (c *Contract) noRoute(resp *http.Response, body []byte) error {
	if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed {
		return errors.New("it has no such operation")
	}
	if resp.Request != nil && resp.Request.Method == http.MethodHead {
		return nil
	}
	if err := c.schemas.check("#/components/schemas/Problem", body); err != nil {
		return err
	}
	_, err := problem(&openapi3.Response{}, resp, body)
	return err
}

// problem checks what a schema cannot: that a problem document says the same as its answer, and has a code that the
// document lists as x-codes. It returns the code, empty where there is no problem.
func problem(documented *openapi3.Response, resp *http.Response, body []byte) (code string, err error) {
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode < 400 || media != "application/problem+json" {
		return "", nil
	}
	var p struct {
		Status   int
		Instance string
		Code     string
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return "", err
	}
	if p.Status != resp.StatusCode {
		return "", fmt.Errorf("the problem says status %d", p.Status)
	}
	if id := resp.Header.Get("X-Request-Id"); p.Instance != id {
		return "", fmt.Errorf("the problem's instance is %q, X-Request-Id is %q", p.Instance, id)
	}
	if codes, ok := documented.Extensions["x-codes"].([]any); ok && !slices.Contains(codes, any(p.Code)) {
		return "", fmt.Errorf("code %q is not one of %v", p.Code, codes)
	}
	return p.Code, nil
}

// find is the operation of a path as it was sent, with its parameters decoded. A fixed segment goes before a parameter.
func (c *Contract) find(method, path string) (*routers.Route, map[string]string) {
	sent := strings.Split(path, "/")
	var best *routers.Route
	var params map[string]string
	for template, item := range c.doc.Paths.Map() {
		values, ok := match(strings.Split(template, "/"), sent)
		if !ok || best != nil && len(values) >= len(params) {
			continue
		}
		best = &routers.Route{Spec: c.doc, Path: template, PathItem: item, Method: method, Operation: item.GetOperation(method)}
		params = values
	}
	if best == nil || best.Operation == nil {
		return nil, nil
	}
	return best, params
}

func match(template, sent []string) (map[string]string, bool) {
	if len(template) != len(sent) {
		return nil, false
	}
	values := map[string]string{}
	for i, want := range template {
		name, isParam := strings.CutPrefix(want, "{")
		if !isParam && want != sent[i] || isParam && sent[i] == "" {
			return nil, false
		}
		if !isParam {
			continue
		}
		value, err := url.PathUnescape(sent[i])
		if err != nil {
			value = sent[i]
		}
		values[strings.TrimSuffix(name, "}")] = value
	}
	return values, true
}

func withBody(req *http.Request, body []byte) *http.Request {
	out := req.Clone(context.Background())
	out.Body, out.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(body))
	}
	return out
}
