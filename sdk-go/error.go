package carillon

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The sentinels that errors.Is compares with an [*Error]. Each stands for HTTP statuses; a [Code] is more exact.
var (
	ErrInvalid      = errors.New("carillon: invalid request")         // 400, 413, 415, 422
	ErrUnauthorized = errors.New("carillon: unauthorized")            // 401
	ErrForbidden    = errors.New("carillon: forbidden")               // 403
	ErrNotFound     = errors.New("carillon: not found")               // 404
	ErrConflict     = errors.New("carillon: conflict")                // 409
	ErrPrecondition = errors.New("carillon: precondition not met")    // 412
	ErrRateLimited  = errors.New("carillon: rate limited")            // 429
	ErrUnavailable  = errors.New("carillon: temporarily unavailable") // 503
)

// Error is the server's refusal of a request, read from its problem document (RFC 9457).
type Error struct {
	Status     int           // HTTP status
	Code       Code          // stable; empty if a proxy answered instead of the server
	Detail     string        // for a person
	Fields     []Field       // what is wrong with the request's body, by field
	RequestID  string        // names the request in the server's log
	RetryAfter time.Duration // the wait that the server asks for; zero if it names none

	Quota       string  // the quota that is used up; empty: no quota is
	Limit, Used float64 // that quota's limit and use

	Schedules, Cohorts int64 // if the thing is in use: how many schedules name it, and in how many cohorts they are

	Summary *SyncSummary // if a sync would change too much: the counts that it would have had
	Stored  int64        // how many schedules the scope of that sync has
}

// Field is one bad field of a request: a JSON pointer (RFC 6901) into its body, a stable code and what is wrong.
type Field struct {
	Pointer string `json:"pointer"`
	Code    Code   `json:"code"`
	Detail  string `json:"detail"`
}

// Error returns the whole refusal in one line.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "carillon: %d", e.Status)
	if e.Code != "" {
		b.WriteString(" " + string(e.Code))
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	for _, f := range e.Fields {
		fmt.Fprintf(&b, "; %s: %s", f.Pointer, f.Detail)
	}
	if e.RequestID != "" {
		b.WriteString(" (request " + e.RequestID + ")")
	}
	return b.String()
}

// Is reports whether target is the sentinel of e's status, or e's code.
func (e *Error) Is(target error) bool {
	if code, ok := target.(Code); ok {
		return e.Code == code
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return target == ErrInvalid
	case http.StatusUnauthorized:
		return target == ErrUnauthorized
	case http.StatusForbidden:
		return target == ErrForbidden
	case http.StatusNotFound:
		return target == ErrNotFound
	case http.StatusConflict:
		return target == ErrConflict
	case http.StatusPreconditionFailed:
		return target == ErrPrecondition
	case http.StatusTooManyRequests:
		return target == ErrRateLimited
	case http.StatusServiceUnavailable:
		return target == ErrUnavailable
	}
	return false
}

// passing reports whether the request had no effect and may succeed a little later.
func (e *Error) passing() bool {
	if e.Code == CodeOutcomeUnknown {
		return false
	}
	switch e.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestTimeout:
		return true
	}
	return e.Code == "idempotency_in_flight" // an attempt whose answer was lost is still in progress
}

// unsure reports whether the request may have taken effect: the server does not know, or a proxy answered.
func (e *Error) unsure() bool {
	return e.Code == CodeOutcomeUnknown || e.Status == http.StatusBadGateway || e.Status == http.StatusGatewayTimeout
}

// refusal reads an answer that is not 2xx. It drops a body that is no problem document, such as a proxy's page.
func refusal(resp *http.Response, body []byte, now time.Time) *Error {
	var problem struct {
		Title    string  `json:"title"`
		Code     Code    `json:"code"`
		Detail   string  `json:"detail"`
		Instance string  `json:"instance"`
		Errors   []Field `json:"errors"`
		Quota    string  `json:"quota"`
		Limit    float64 `json:"limit"`
		Used     float64 `json:"used"`

		Schedules int64        `json:"schedules"`
		Cohorts   int64        `json:"cohorts"`
		Summary   *SyncSummary `json:"summary"`
		Stored    int64        `json:"stored"`
	}
	if json.Unmarshal(body, &problem) != nil {
		problem.Title = http.StatusText(resp.StatusCode)
	}
	e := &Error{
		Status:     resp.StatusCode,
		Code:       problem.Code,
		Detail:     problem.Detail,
		Fields:     problem.Errors,
		RequestID:  resp.Header.Get("X-Request-Id"),
		RetryAfter: retryAfter(resp.Header.Get("Retry-After"), now),
		Quota:      problem.Quota,
		Limit:      problem.Limit,
		Used:       problem.Used,
		Schedules:  problem.Schedules,
		Cohorts:    problem.Cohorts,
		Summary:    problem.Summary,
		Stored:     problem.Stored,
	}
	if e.Detail == "" {
		e.Detail = problem.Title
	}
	if e.RequestID == "" {
		e.RequestID = problem.Instance
	}
	return e
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3). It returns zero for other values and for past dates.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// asType returns the first error of the type E in err's chain.
func asType[E error](err error) (E, bool) {
	var found E
	ok := errors.As(err, &found)
	return found, ok
}
