// Package fault is the error a caller can mend: it has a status, a stable code and a text that may be shown.
// Any other error is ours, is answered as 500 and is never shown.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Field is one bad field of a request: a JSON pointer (RFC 6901) into its body, a stable code and what is wrong.
type Field struct {
	Pointer string `json:"pointer"`
	Code    string `json:"code"`
	Detail  string `json:"detail"`
}

// Error is a fault of the caller's. Status is the HTTP status it is answered with, Code is stable and snake_case.
type Error struct {
	Status     int
	Code       string
	Detail     string
	Fields     []Field
	RetryAfter time.Duration     // zero: no Retry-After
	Extra      map[string]any    // further members of the problem document
	Header     map[string]string // further headers of the answer
}

// Error says the detail, and each bad field behind it.
func (e *Error) Error() string {
	if len(e.Fields) == 0 {
		return e.Detail
	}
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Pointer + ": " + f.Detail
	}
	if e.Detail == "" {
		return strings.Join(parts, "; ")
	}
	return e.Detail + ": " + strings.Join(parts, "; ")
}

// New returns a fault with any status and code.
func New(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Malformed is a request whose syntax is wrong: 400.
func Malformed(code, format string, args ...any) *Error {
	return New(400, code, format, args...)
}

// NotFound is a thing that is absent, or another tenant's: 404.
func NotFound(format string, args ...any) *Error {
	return New(404, "not_found", format, args...)
}

// IsNotFound reports whether an error is a fault of a thing that is absent.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == 404
}

// Refusal returns the fault in an error, if the request is at fault and not the service.
func Refusal(err error) (f *Error, ok bool) {
	f, ok = errors.AsType[*Error](err)
	return f, ok && f.Status < 500
}

// Forbidden is a request that the tenant may not make, or that is beyond its quota: 403.
func Forbidden(code, format string, args ...any) *Error {
	return New(403, code, format, args...)
}

// TooLarge is a request with more bytes than are allowed: 413.
func TooLarge(code, format string, args ...any) *Error {
	return New(413, code, format, args...)
}

// TooMany is a request that comes too soon after others: 429 with code "rate_limited".
func TooMany(format string, args ...any) *Error {
	return New(429, "rate_limited", format, args...)
}

// Unavailable is a request that cannot be served now, and can be later: 503.
func Unavailable(code, format string, args ...any) *Error {
	return New(503, code, format, args...)
}

// Conflict is a request that does not fit the present state: 409.
func Conflict(code, format string, args ...any) *Error {
	return New(409, code, format, args...)
}

// Mismatch is a precondition that does not hold (RFC 9110 section 13): 412.
func Mismatch(format string, args ...any) *Error {
	return New(412, "version_mismatch", format, args...)
}

// Invalid is one field with a meaning that cannot be: 422, with code "invalid".
func Invalid(pointer, format string, args ...any) *Error {
	return Fields(Field{Pointer: pointer, Code: "invalid", Detail: fmt.Sprintf(format, args...)})
}

// Fields are fields with meanings that cannot be: 422. The code is the field's own where there is one only.
func Fields(fields ...Field) *Error {
	e := &Error{Status: 422, Code: "invalid", Detail: "the request has fields that cannot be", Fields: fields}
	if len(fields) == 1 {
		e.Code, e.Detail = fields[0].Code, fields[0].Detail
	}
	return e
}

// Join puts the fields of several faults into one 422, so that all can be mended at once. It returns nil without any.
func Join(errs ...error) error {
	var fields []Field
	for _, err := range errs {
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || len(e.Fields) == 0 {
			return err
		}
		fields = append(fields, e.Fields...)
	}
	if len(fields) == 0 {
		return nil
	}
	return Fields(fields...)
}
