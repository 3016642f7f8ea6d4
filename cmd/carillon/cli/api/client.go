package api

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// Client sends requests to one server. Its fields must not change while it is used.
type Client struct {
	URL        string
	Credential func(context.Context) (string, error) // the bearer token; nil or "": none
	HTTP       *http.Client
	Agent      string                   // the User-Agent
	Patience   time.Duration            // how long one request is tried, attempts and pauses together
	Curl       io.Writer                // nil, or gets each request as a curl command without its token
	Waiting    func(why error)          // nil, or is called before the first repetition of a request
	Seen       func(header http.Header) // nil, or is called with the header of each answer
}

// Answer is the server's answer to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a Answer) retryAfter() time.Duration {
	seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// maxAnswer is how many bytes an answer may have. Longer answers are streams.
const maxAnswer = 256 << 20

// Do sends a request, repeats it where that is harmless, and returns the answer. A refusal is a *Problem. No answer is an *Away.
func (c *Client) Do(ctx context.Context, r Request) (Answer, error) {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(c.Patience))
	defer cancel()
	r.Header = maps.Clone(r.Header)
	if r.method() == http.MethodPost && r.Header["Idempotency-Key"] == "" {
		if r.Header == nil {
			r.Header = map[string]string{}
		}
		r.Header["Idempotency-Key"] = crand.Text()
	}
	var before error // how the attempt before ended
	for attempt := 0; ; attempt++ {
		answer, err := c.once(ctx, r)
		if !repeatable(r, err) {
			return answer, err
		}
		if ctx.Err() != nil { // the end of ctx cut this attempt, so the one before says more
			return answer, c.gaveUp(ctx, err, before, time.Since(began))
		}
		before = err
		if attempt == 0 && c.Waiting != nil {
			c.Waiting(err)
		}
		pause := time.NewTimer(pauseAfter(attempt, err))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return answer, c.gaveUp(ctx, err, nil, time.Since(began))
		}
	}
}

// once sends a request and reads its whole answer.
func (c *Client) once(ctx context.Context, r Request) (Answer, error) {
	resp, err := c.send(ctx, r, bytes.NewReader(r.Body))
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return Answer{}, &Away{URL: c.URL, Err: err}
	}
	if len(body) > maxAnswer {
		return Answer{}, fmt.Errorf("the answer to %s %s has more than %d MiB", r.method(), r.Path, maxAnswer>>20)
	}
	answer := Answer{resp.StatusCode, resp.Header, body}
	if resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusNotModified {
		return answer, problem(answer)
	}
	return answer, nil
}

// Stream sends a request whose body or answer may be long, once and without a deadline. The caller closes the answer's body. A refusal
// is a *Problem.
func (c *Client) Stream(ctx context.Context, r Request, body io.Reader) (*http.Response, error) {
	if body != nil {
		body = endingWith(ctx, body)
	}
	resp, err := c.send(ctx, r, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // without it, the status still says what is wrong
	return nil, problem(Answer{resp.StatusCode, resp.Header, text})
}

// endingWith returns a reader of the same bytes that fails when ctx ends. Nothing interrupts a Read of a pipe or a terminal, for which the
// HTTP client would wait. The goroutine may stay in such a Read until the process ends.
func endingWith(ctx context.Context, in io.Reader) io.Reader {
	out, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(w, in)
		w.CloseWithError(err)
		stop()
	}()
	return out
}

func (c *Client) send(ctx context.Context, r Request, body io.Reader) (*http.Response, error) {
	if r.Body == nil {
		if b, ok := body.(*bytes.Reader); ok && b.Len() == 0 {
			body = nil
		}
	}
	request, err := http.NewRequestWithContext(ctx, r.method(), r.address(c.URL), body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", r.media())
	}
	request.Header.Set("User-Agent", c.Agent)
	for name, value := range r.Header {
		request.Header.Set(name, value)
	}
	if c.Credential != nil {
		token, err := c.Credential(ctx)
		if err != nil {
			return nil, err
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
	}
	c.printCurl(request, r.Body)
	resp, err := c.HTTP.Do(request)
	if err != nil {
		return nil, &Away{URL: c.URL, Err: err}
	}
	if c.Seen != nil {
		c.Seen(resp.Header)
	}
	return resp, nil
}

// repeatable reports whether a request that ended with err may be sent again. An answer outcome_unknown is not repeated for a POST that
// the server might not recognise.
func repeatable(r Request, err error) bool {
	if away, ok := errors.AsType[*Away](err); ok {
		return !errors.Is(away.Err, context.Canceled)
	}
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		return false
	}
	switch p.Status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusServiceUnavailable:
		return p.Code != "outcome_unknown" || r.method() != http.MethodPost
	}
	return false
}

// pauseAfter returns how long to wait before the next attempt: a random part of a growing time (full jitter), but never less than the
// server asks for.
func pauseAfter(attempt int, err error) time.Duration {
	most := min(200*time.Millisecond<<min(attempt, 10), 5*time.Second)
	pause := 50*time.Millisecond + rand.N(most)
	if p, ok := errors.AsType[*Problem](err); ok && p.RetryAfter > 0 {
		return p.RetryAfter + rand.N(200*time.Millisecond)
	}
	return pause
}

// gaveUp returns the error of a request that was repeated until ctx ended. The last attempt ended with err. The error before is that of the
// attempt before it, or nil if err says enough.
func (c *Client) gaveUp(ctx context.Context, err, before error, took time.Duration) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Canceled
	}
	if away, ok := errors.AsType[*Away](err); ok {
		away.Took, away.Before = took, before
		return away
	}
	return err
}
