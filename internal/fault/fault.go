// Package fault is the error type for mistakes of the caller. A fault has an HTTP status, a stable code, and a text that the caller
// may see; the domain returns it, and internal/web writes it as a problem document (RFC 9457). Any other error is a mistake of the
// service: the caller gets 500 without its text. The package keeps no state.
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

// Error is a mistake of the caller. Status is the HTTP status of the answer. Code is stable and in snake_case.
type Error struct {
	Status     int
	Code       string
	Detail     string
	Fields     []Field
	RetryAfter time.Duration     // zero: no Retry-After
	Extra      map[string]any    // further members of the problem document
	Header     map[string]string // further headers of the answer
}

// Error returns the detail, followed by each bad field.
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

// Malformed returns the fault 400 of a request with wrong syntax.
func Malformed(code, format string, args ...any) *Error {
	return New(400, code, format, args...)
}

// NotFound returns the fault 404, for a thing that does not exist or belongs to another tenant.
func NotFound(format string, args ...any) *Error {
	return New(404, "not_found", format, args...)
}

// IsNotFound reports whether an error is a fault 404.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == 404
}

// Refusal returns the fault in an error. It reports false for other errors, and for faults with a status of 500 or more.
func Refusal(err error) (f *Error, ok bool) {
	f, ok = errors.AsType[*Error](err)
	return f, ok && f.Status < 500
}

// Forbidden returns the fault 403 of a request that the tenant may not make, or that exceeds a quota.
func Forbidden(code, format string, args ...any) *Error {
	return New(403, code, format, args...)
}

// TooLarge returns the fault 413 of a request with too many bytes.
func TooLarge(code, format string, args ...any) *Error {
	return New(413, code, format, args...)
}

// TooMany returns the fault 429 of a request above a rate limit. Its code is "rate_limited".
func TooMany(format string, args ...any) *Error {
	return New(429, "rate_limited", format, args...)
}

// Unavailable returns the fault 503 of a request that may succeed later.
func Unavailable(code, format string, args ...any) *Error {
	return New(503, code, format, args...)
}

// Conflict returns the fault 409 of a request that the current state does not allow.
func Conflict(code, format string, args ...any) *Error {
	return New(409, code, format, args...)
}

// Mismatch returns the fault 412 of a precondition that does not hold (RFC 9110 section 13).
func Mismatch(format string, args ...any) *Error {
	return New(412, "version_mismatch", format, args...)
}

// Invalid returns the fault 422 of one field with an invalid value. Its code is "invalid".
func Invalid(pointer, format string, args ...any) *Error {
	return Fields(Field{Pointer: pointer, Code: "invalid", Detail: fmt.Sprintf(format, args...)})
}

// Fields returns the fault 422 of fields with invalid values. A single field gives the fault its code and detail.
func Fields(fields ...Field) *Error {
	e := &Error{Status: 422, Code: "invalid", Detail: "the request has invalid fields", Fields: fields}
	if len(fields) == 1 {
		e.Code, e.Detail = fields[0].Code, fields[0].Detail
	}
	return e
}

// Join returns one fault 422 with the fields of all faults, so that the caller can correct them together. It returns nil if all
// errors are nil, and the first error that has no fields or another status, such as 413.
func Join(errs ...error) error {
	var fields []Field
	for _, err := range errs {
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || len(e.Fields) == 0 || e.Status != 422 {
			return err
		}
		fields = append(fields, e.Fields...)
	}
	if len(fields) == 0 {
		return nil
	}
	return Fields(fields...)
}
