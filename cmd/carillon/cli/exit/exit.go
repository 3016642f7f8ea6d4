// Package exit names the exit codes of the program. Scripts rely on them, so they never change their meaning.
package exit

import (
	"context"
	"errors"
	"fmt"
)

// The exit codes, as `carillon --help` lists them.
const (
	Done        = 0
	Failed      = 1
	Misuse      = 2
	NotFound    = 3
	NotAllowed  = 4 // or not signed in
	Conflict    = 5
	Partly      = 6 // some lines of a bulk request were bad
	TimedOut    = 7
	Interrupted = 130
)

// Help is the paragraph of the help that lists the codes.
const Help = `Exit codes: 0 done, 1 failed, 2 wrong command or setting, 3 not found, 4 not allowed or not
signed in, 5 conflict, 6 partly done, 7 timed out, 130 interrupted.`

// Error ends the program with a code.
type Error struct {
	Code   int
	Err    error  // nil: the command has already printed the reason
	Remedy string // what the user can do, in one line; may be empty
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Misused returns an error that ends the program with Misuse.
func Misused(format string, args ...any) error {
	return &Error{Code: Misuse, Err: fmt.Errorf(format, args...)}
}

// Of returns the code with which err ends the program. ctx is the command's: when a signal has ended it, the code is Interrupted.
func Of(ctx context.Context, err error) int {
	if err == nil {
		return Done
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return Interrupted
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return Failed
}
