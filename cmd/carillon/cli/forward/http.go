// Package forward sends ticks to a program on this machine, as a server would push them to its endpoint: signed by Standard Webhooks.
package forward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// MirrorHeader marks a copy of a tick. The original went to the workflow's endpoint or worker.
const MirrorHeader = "carillon-mirror"

// Target is the program that gets the ticks.
type Target struct {
	URL    string
	Secret string // whsec_…
	Header http.Header
	Client *http.Client
}

// Answer is what the program answered.
type Answer struct {
	Status int
	Body   []byte        // its first KiB
	Wait   time.Duration // what Retry-After asks for, with 429 and 503
	Took   time.Duration
}

const answerRead = 1 << 10

// Good reports whether the program has done the work: any 2xx except 202.
func (a Answer) Good() bool { return a.Status/100 == 2 && !a.Accepted() }

// Accepted reports whether the program does the work later, and reports the result itself: 202.
func (a Answer) Accepted() bool { return a.Status == http.StatusAccepted }

// Text returns the status in words, with the first line of the body of a refusal.
func (a Answer) Text() string {
	text := strconv.Itoa(a.Status) + " " + http.StatusText(a.Status)
	if line, _, _ := strings.Cut(strings.TrimSpace(string(a.Body)), "\n"); line != "" && a.Status/100 != 2 {
		text += ": " + strings.ToValidUTF8(line, "?")
	}
	return text
}

// Check returns an error if ticks cannot be sent to the URL.
func Check(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is not a URL such as http://localhost:3000/ticks", text)
	}
	return nil
}

// Send sends a body, signed at a time. Headers of extra replace those of the target.
func (t Target) Send(ctx context.Context, id string, body []byte, at time.Time, extra http.Header) (a Answer, err error) {
	hook, err := standardwebhooks.NewWebhook(t.Secret)
	if err != nil {
		return a, err
	}
	signature, err := hook.Sign(id, at, body)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	for _, header := range []http.Header{t.Header, extra, {
		"Content-Type":      {"application/json"},
		"User-Agent":        {"carillon"},
		"Webhook-Id":        {id},
		"Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
		"Webhook-Signature": {signature},
	}} {
		for name, values := range header {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	began := time.Now()
	resp, err := t.Client.Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the URL, which each line would repeat
		}
		return a, err
	}
	defer resp.Body.Close()
	a.Status = resp.StatusCode
	if a.Body, err = io.ReadAll(io.LimitReader(resp.Body, answerRead)); err != nil {
		return a, fmt.Errorf("read the answer: %w", err)
	}
	if a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable {
		a.Wait = retryAfter(resp.Header.Get("Retry-After"), began)
	}
	a.Took = time.Since(began)
	return a, nil
}

// retryAfter reads a number of seconds or a date, up to a day. Anything else is 0.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, 24*time.Hour)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), 24*time.Hour)
	}
	return 0
}

// Headers reads lines such as "Authorization: Bearer x".
func Headers(lines []string) (http.Header, error) {
	header := http.Header{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if !found || name == "" || strings.ContainsAny(name, " \t\r\n") || strings.ContainsAny(value, "\r\n") {
			return nil, fmt.Errorf("%q is not a header such as Name: value", line)
		}
		header.Add(name, strings.TrimSpace(value))
	}
	return header, nil
}
