package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

// Problem is an answer of the server that refuses a request (RFC 9457).
type Problem struct {
	Status    int     `json:"status"`
	Code      string  `json:"code"`
	Title     string  `json:"title"`
	Detail    string  `json:"detail"`
	RequestID string  `json:"instance"`
	Errors    []Field `json:"errors"`

	RetryAfter time.Duration `json:"-"` // 0: the answer does not say
	Raw        []byte        `json:"-"` // the document itself
}

// Field is one bad member of a request.
type Field struct {
	Pointer string `json:"pointer"` // a JSON pointer into the request's body, or the name of a parameter
	Code    string `json:"code"`
	Detail  string `json:"detail"`
}

func (p *Problem) Error() string {
	switch {
	case p.Code == "":
		return fmt.Sprintf("the server answered %d %s", p.Status, http.StatusText(p.Status))
	case p.Detail == "":
		return fmt.Sprintf("%s (%s)", p.Title, p.Code)
	}
	return fmt.Sprintf("%s (%s)", p.Detail, p.Code)
}

// ExitCode returns the exit code of a command that the problem ends.
func (p *Problem) ExitCode() int {
	switch p.Status {
	case http.StatusNotFound, http.StatusGone:
		return exit.NotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return exit.NotAllowed
	case http.StatusConflict, http.StatusPreconditionFailed:
		return exit.Conflict
	case http.StatusGatewayTimeout:
		return exit.TimedOut
	}
	return exit.Failed
}

// problem reads a refusal. An answer that is no problem document becomes a problem without a code.
func problem(a Answer) *Problem {
	p := &Problem{}
	if err := json.Unmarshal(a.Body, p); err != nil || p.Code == "" {
		p = &Problem{}
	}
	p.Status, p.Raw, p.RetryAfter = a.Status, a.Body, a.retryAfter()
	if p.RequestID == "" {
		p.RequestID = a.Header.Get("X-Request-Id")
	}
	return p
}

// Away is the error when the server gave no answer at all.
type Away struct {
	URL    string
	Took   time.Duration
	Err    error
	Before error // why the attempt before got no result, if the time ran out during the last one; else nil
}

func (a *Away) Error() string {
	text := fmt.Sprintf("no answer from %s within %s: %v", a.URL, a.Took.Round(100*time.Millisecond), cause(a.Err))
	if a.Before != nil {
		text += fmt.Sprintf("; before that: %v", cause(a.Before))
	}
	return text
}

func (a *Away) Unwrap() error { return a.Err }

// cause returns the innermost error, because the outer ones repeat the URL.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// HasCode reports whether err is a problem with the given code.
func HasCode(err error, code string) bool {
	p, ok := errors.AsType[*Problem](err)
	return ok && p.Code == code
}

// HasStatus reports whether err is a problem with the given HTTP status.
func HasStatus(err error, status int) bool {
	p, ok := errors.AsType[*Problem](err)
	return ok && p.Status == status
}
