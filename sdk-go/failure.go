package carillon

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"
)

var (
	// ErrCancelled is the cause of a handler's context when its tick was cancelled.
	ErrCancelled = errors.New("carillon: the tick was cancelled")

	// ErrLeaseLost is the cause of a handler's context when the worker has lost the lease of its tick.
	ErrLeaseLost = errors.New("carillon: the lease of the tick was lost")

	// ErrTimeout is the cause of a handler's context when the attempt has run as long as the schedule's delivery.timeout allows. The server
	// has then ended the attempt as timed out, and the outcome of the handler no longer counts.
	ErrTimeout = errors.New("carillon: the attempt ran longer than its timeout")

	// ErrShutdown is the cause of a handler's context when the handler ran longer than the worker's ShutdownTimeout allows.
	ErrShutdown = errors.New("carillon: the worker shuts down")
)

// Later is what a webhook's function returns to end the tick later. The webhook answers 202, and the tick stays running until a program calls
// [Ticks.Complete] or [Ticks.Fail] with its lease token. For a worker it is an ordinary error: its handler can simply take longer.
var Later error = later{}

type later struct{}

func (later) Error() string { return "carillon: to be completed later" }

// Drop returns an error. A handler returns it when the tick needs no work, for example because the user has left. Then the tick
// succeeds with the result {"dropped": reason}, and no other attempt and no dead letter follow.
func Drop(reason string) error { return dropped(reason) }

type dropped string

func (d dropped) Error() string { return "dropped: " + string(d) }

// settle returns the result and the error of a handler, in which a drop is a success.
func settle(result any, err error) (any, error) {
	if d, ok := asType[dropped](err); ok {
		return map[string]string{"dropped": string(d)}, nil
	}
	return result, err
}

type permanent struct{ error }

func (e permanent) Unwrap() error { return e.error }

type retryLater struct {
	error
	after time.Duration
}

func (e retryLater) Unwrap() error { return e.error }

// Permanent marks a handler's error as final: the tick fails without another attempt. A nil err stays nil. A webhook cannot report this:
// for a pushed tick it is an ordinary error.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// longestRetry is the longest wait that the API accepts.
const longestRetry = 24 * time.Hour

// RetryAfter marks a handler's error with the wait before the next attempt, at most a day. A nil err stays nil.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return retryLater{err, after}
}

// retryOf reports whether the failure allows another attempt, and after what wait; zero leaves the wait to the server.
func retryOf(err error) (retry bool, after time.Duration) {
	if _, ok := asType[permanent](err); ok {
		return false, 0
	}
	if later, ok := asType[retryLater](err); ok {
		return true, min(max(0, later.after), longestRetry)
	}
	return true, 0
}

// errorLimit bounds the bytes of an error's text in the history.
const errorLimit = 2048

// errorText returns the text of a failure in the form that the API accepts: UTF-8 without NUL, of bounded length.
func errorText(err error) string {
	if err == nil {
		return "failed without an error"
	}
	text := err.Error()
	if len(text) > errorLimit {
		text = text[:errorLimit] + "…"
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if text == "" {
		return "failed with an error that has no text"
	}
	return text
}

// logFailure logs the failure of a tick, without its payload.
func logFailure(ctx context.Context, log *slog.Logger, t Tick[json.RawMessage], err error) {
	facts := []any{"tick_id", t.TickID, "workflow", t.Workflow, "attempt", t.Attempt, "error", errorText(err)}
	if p, ok := asType[panicked](err); ok {
		facts = append(facts, "stack", string(p.stack))
	}
	log.WarnContext(ctx, "tick failed", facts...)
}
