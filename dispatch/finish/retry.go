package finish

import (
	"math/rand/v2"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/schedules/policy"
)

// underWay is a tick whose attempt failed, with the terms that say whether it is retried.
type underWay struct {
	ScheduleID  int64
	NominalAt   time.Time
	Seq         int32
	Shard       int16
	Trace       []byte
	Stopped     bool // told to stop
	Aside       bool
	From        int16 // attempts before its last replay, which do not count
	MaxAttempts *int16
	MaxLateness *int32 `db:"max_lateness_s"`
	OnExpired   *string
	Defaults    []byte
}

const (
	firstBackoff   = 5 * time.Second
	longestBackoff = time.Hour
)

// Backoff returns the wait after a failed attempt: full jitter in [0, min(1 h, 5 s · 2ⁿ)], where n is the number of failures before
// it. draw returns a random number in [0, n).
func Backoff(attempt int16, draw func(n int64) int64) time.Duration {
	most := longestBackoff
	if n := attempt - 1; n < 10 {
		most = min(most, firstBackoff<<n)
	}
	return time.Duration(draw(int64(most) + 1))
}

// retryAt returns when a tick is retried after a failed attempt. again is false if its attempts are used up, or it would be later than it
// may be. If this program cannot read the defaults of the workflow, the tick is held for record.NewerWait, for a program that can.
func (u *underWay) retryAt(e *Ending, now time.Time) (due time.Time, again bool) {
	if e.Final || u.Stopped || e.Outcome == Cancelled {
		return due, false
	}
	terms, err := policy.Resolve(policy.Stored{MaxAttempts: u.MaxAttempts, MaxLateness: u.MaxLateness, OnExpired: u.OnExpired}, u.Defaults)
	if err != nil {
		return now.Add(record.NewerWait), true
	}
	if e.Attempt-u.From >= terms.MaxAttempts {
		return due, false
	}
	due = now.Add(max(Backoff(e.Attempt-u.From, rand.Int64N), e.RetryAfter))
	if e.Outcome == Lost {
		due = now
	}
	if u.Aside { // a replay or a backfill runs however late it is
		return due, true
	}
	return due, !terms.Expired(u.NominalAt, due)
}

// Unwanted returns the ending of a tick that is not to be delivered any more. over is true if it was told to stop, or is later than it
// may be.
func Unwanted(s *record.Sendable, inherited policy.Terms, now time.Time) (e Ending, over bool) {
	e = Ending{TickKey: s.RowKey(), Attempt: s.Attempt, Unsent: true}
	latest, expires := s.Latest(inherited)
	switch {
	case s.Stopped():
		e.Outcome = Cancelled
	case expires && now.After(latest):
		e.Outcome, e.Final, e.Err = Failed, true, new("it could not be delivered within its max_lateness")
	default:
		return e, false
	}
	return e, true
}
