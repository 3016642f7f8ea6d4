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
	// ErrAccepted, returned by a webhook's function, answers 202: the tick stays running until [Client.Complete] or
	// [Client.Fail] is called with its lease token. To a worker it is an error like any other.
	ErrAccepted = errors.New("carillon: accepted, to be completed later")

	// ErrCancelled is the cause of a handler's context when its tick was cancelled.
	ErrCancelled = errors.New("carillon: the tick was cancelled")

	// ErrLeaseLost is the cause of a handler's context when its tick is no longer this worker's.
	ErrLeaseLost = errors.New("carillon: the lease of the tick was lost")

	// ErrShutdown is the cause of a handler's context when it outlasted the worker's ShutdownTimeout.
	ErrShutdown = errors.New("carillon: the worker shuts down")
)

type permanent struct{ error }

func (e permanent) Unwrap() error { return e.error }

type retryLater struct {
	error
	after time.Duration
}

func (e retryLater) Unwrap() error { return e.error }

// Permanent marks a handler's error as one that trying again will not mend: the tick has failed. A nil err stays nil.
// A webhook cannot say so: to a pushed tick it is an error like any other.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// longestRetry is the longest wait that the API takes.
const longestRetry = 24 * time.Hour

// RetryAfter marks a handler's error with how long to wait before the next attempt, at most a day. A nil err stays nil.
func RetryAfter(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return retryLater{err, after}
}

// retryOf says whether the failure is worth another attempt, and after how long; zero leaves that to the server.
func retryOf(err error) (retry bool, after time.Duration) {
	if _, ok := errors.AsType[permanent](err); ok {
		return false, 0
	}
	if later, ok := errors.AsType[retryLater](err); ok {
		return true, min(max(0, later.after), longestRetry)
	}
	return true, 0
}

// errorLimit keeps an error's text, which a handler may have made of anything, within what a history should bear.
const errorLimit = 2048

// errorText is the text of a failure as the API takes it: UTF-8 without NUL, and not endless.
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

// logFailure tells the log of a tick's failure, by names alone.
func logFailure(ctx context.Context, log *slog.Logger, t Tick[json.RawMessage], err error) {
	facts := []any{"tick_id", t.TickID, "workflow", t.Workflow, "attempt", t.Attempt, "error", errorText(err)}
	if p, ok := errors.AsType[panicked](err); ok {
		facts = append(facts, "stack", string(p.stack))
	}
	log.WarnContext(ctx, "tick failed", facts...)
}
