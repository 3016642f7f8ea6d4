package carillon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	firstBackoff = 200 * time.Millisecond
	longestWait  = 30 * time.Second // if the server asks for a longer wait, the call returns the error at once
	answerLimit  = 256 << 20        // a full page of the largest payloads is a quarter of this
)

// call is one request of the API, which may take several attempts.
type call struct {
	method  string
	path    string // escaped, from /v1 on
	query   url.Values
	header  map[string]string
	body    []byte
	timeout time.Duration // of one attempt; zero: the client's

	// once forbids a second attempt if the first may have taken effect without an answer. A 429 or 503 says that it did
	// not, unless its code is outcome_unknown.
	once bool
	// single forbids any second attempt.
	single bool

	etag  string // output: the version of the answered resource
	token string // output: the credential of the last attempt
	lost  bool   // output: the answer to an attempt was lost, so it may have taken effect
}

// path joins segments, each percent-encoded by itself, so that a slash in a key stays within its segment.
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteByte('/')
		switch s {
		case ".", "..": // proxies resolve these as steps in the path
			b.WriteString(strings.ReplaceAll(s, ".", "%2E"))
		default:
			b.WriteString(url.PathEscape(s))
		}
	}
	return b.String()
}

// encode returns v as JSON and does not escape <, > and &.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("carillon: encode: %w", err)
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// raw returns v as JSON, and a json.RawMessage byte for byte. It returns nothing for a nil v.
func raw(v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if len(v) > 0 && !json.Valid(v) {
			return nil, errors.New("carillon: encode: the json.RawMessage is not JSON")
		}
		return v, nil
	}
	return encode(v)
}

// with adds a member to a JSON object. encoding/json would compact and escape a json.RawMessage.
func with(object []byte, name string, value json.RawMessage) []byte {
	if len(value) == 0 {
		return object
	}
	object = bytes.TrimSuffix(object, []byte("}"))
	if len(object) > 1 {
		object = append(object, ',')
	}
	object = append(object, '"')
	object = append(object, name...)
	object = append(object, `":`...)
	object = append(object, value...)
	return append(object, '}')
}

// read makes the call and decodes its answer.
func read[T any](ctx context.Context, c *Client, r *call) (T, error) {
	var answer T
	body, err := c.do(ctx, r)
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return answer, fmt.Errorf("carillon: %s %s: decode the answer: %w", r.method, r.path, err)
	}
	return answer, nil
}

// get reads a resource.
func get[T any](ctx context.Context, c *Client, path string, q query) (T, error) {
	return read[T](ctx, c, &call{method: http.MethodGet, path: path, query: url.Values(q)})
}

// post sends params in a POST that has an idempotency key. A nil params sends no body.
func post[T any](ctx context.Context, c *Client, path string, params any, key string) (T, error) {
	return send[T](ctx, c, &call{method: http.MethodPost, path: path, header: idempotent(key)}, params)
}

// postIf is post with the precondition that the schedule has a version. A version of zero is no precondition.
func postIf[T any](ctx context.Context, c *Client, path string, params any, key string, version int64) (T, error) {
	header := idempotent(key)
	maps.Copy(header, ifMatch(version))
	return send[T](ctx, c, &call{method: http.MethodPost, path: path, header: header}, params)
}

// change sends params with a condition, which may be nil. With a condition it is sent once, because the first attempt may have stored
// the version that a second one would find.
func change[T any](ctx context.Context, c *Client, method, path string, params any, condition map[string]string) (T, error) {
	return send[T](ctx, c, &call{method: method, path: path, header: condition, once: condition != nil}, params)
}

// send makes a call with params as its body, none if they are nil.
func send[T any](ctx context.Context, c *Client, r *call, params any) (T, error) {
	if params != nil {
		body, err := raw(params)
		if err != nil {
			return *new(T), err
		}
		r.body = body
	}
	return read[T](ctx, c, r)
}

// do makes the call, retries it if that helps, and returns the answer's body. If ctx ends during a later attempt, the error also says how
// the attempt before it ended, in its text only: the outcome of the last attempt is not known.
func (c *Client) do(ctx context.Context, r *call) ([]byte, error) {
	renewed := false
	var before error
	for attempt := 0; ; attempt++ {
		body, err := c.attempt(ctx, r)
		if err == nil {
			return body, nil
		}
		if before != nil && ctx.Err() != nil {
			return nil, fmt.Errorf("%w (the attempt before it: %v)", err, before)
		}
		before = err
		if refusedBy(err) && r.token != "" && c.credential.refused(r.token) && !renewed {
			renewed = true // a refused credential has no effect, so a second attempt with the next token is harmless
			continue
		}
		if !r.retry(err) || attempt >= c.retries {
			return nil, err
		}
		pause := pauseAfter(err, attempt)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
			return nil, err // it says more than the deadline that passed during the wait
		}
		if !wait(ctx, pause) {
			return nil, err
		}
	}
}

// remove makes a call that deletes. After an attempt whose answer was lost, 404 means that the attempt deleted it.
func (c *Client) remove(ctx context.Context, r *call) error {
	_, err := c.do(ctx, r)
	if r.lost && errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// request returns a request with the headers of every one. Its error is a tokenError if the token source failed.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	token, err := c.credential.token(ctx)
	if err != nil {
		return nil, fmt.Errorf("carillon: token: %w", tokenError{err})
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	req.URL.RawQuery = query.Encode()
	if traceparent := outgoing(ctx, c.propagator); traceparent != "" {
		req.Header.Set("traceparent", traceparent)
	}
	req.Header.Set("User-Agent", c.userAgent)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// attempt makes the request once. Its error is an *Error if the server answered.
func (c *Client) attempt(parent context.Context, r *call) ([]byte, error) {
	timeout := r.timeout
	if timeout == 0 {
		timeout = c.timeout
	}
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	req, err := c.request(ctx, r.method, r.path, r.query, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	r.token = strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
	req.Header.Set("Accept", "application/json")
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit+1))
	if err != nil {
		return nil, fmt.Errorf("carillon: %s %s: read the answer: %w", r.method, r.path, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refusal(resp, body, time.Now())
	}
	r.etag = resp.Header.Get("ETag")
	if len(body) > answerLimit {
		return nil, fmt.Errorf("carillon: %s %s: the answer is longer than %d bytes", r.method, r.path, answerLimit)
	}
	return body, nil
}

// tokenError marks an error of the token source: no request was sent, and only the token source may retry.
type tokenError struct{ error }

func (e tokenError) Unwrap() error { return e.error }

// retry reports whether another attempt may help and does no harm.
func (r *call) retry(err error) bool {
	if _, ok := asType[tokenError](err); ok {
		return false
	}
	refused, ok := asType[*Error](err)
	if ok && refused.passing() {
		return !r.single && refused.RetryAfter <= longestWait
	}
	if ok && !refused.unsure() {
		return false
	}
	r.lost = true
	return !r.once && !r.single
}

// pauseAfter returns the wait after attempt n (from 0) that ended in err: full jitter, but at least the time that the
// server asked for.
func pauseAfter(err error, attempt int) time.Duration {
	pause := rand.N(min(firstBackoff<<min(attempt, 10), longestWait) + 1)
	if refused, ok := asType[*Error](err); ok {
		pause += refused.RetryAfter
	}
	return pause
}

// wait waits for d and reports whether it passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// seconds formats a duration for the API, rounded up to a whole second.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%ds", (d+time.Second-1)/time.Second)
}
