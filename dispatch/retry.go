package dispatch

import (
	"math/rand/v2"
	"time"

	"github.com/carillonhq/carillon/schedules/policy"
)

// underWay is a tick whose attempt failed, with the terms that say whether it is tried again.
type underWay struct {
	ScheduleID  int64
	NominalAt   time.Time
	Seq         int32
	Shard       int16
	Stopped     bool // told to stop
	Aside       bool
	From        int16 // attempts that do not count: those before it was delivered again
	MaxAttempts *int16
	MaxLateness *int32 `db:"max_lateness_s"`
	OnExpired   *string
	Defaults    []byte
}

const (
	firstBackoff   = 5 * time.Second
	longestBackoff = time.Hour
)

// backoff is the wait before the try after attempt: full jitter in [0, min(1 h, 5 s · 2ⁿ)], n failures before it.
func backoff(attempt int16, draw func(n int64) int64) time.Duration {
	most := longestBackoff
	if n := attempt - 1; n < 10 {
		most = min(most, firstBackoff<<n)
	}
	return time.Duration(draw(int64(most) + 1))
}

// retryAt returns when a failed attempt's tick is tried again: never past its attempts or its greatest lateness. Where this
// program cannot read the defaults of the workflow, the tick is not ended: its next delivery waits for one that can.
func (u *underWay) retryAt(e *ending, now time.Time) (due time.Time, again bool) {
	if e.final || u.Stopped || e.outcome == cancelled {
		return due, false
	}
	terms, err := policy.Resolve(policy.Stored{MaxAttempts: u.MaxAttempts, MaxLateness: u.MaxLateness, OnExpired: u.OnExpired}, u.Defaults)
	if err != nil {
		return now.Add(newerWait), true
	}
	if e.attempt-u.From >= terms.MaxAttempts {
		return due, false
	}
	due = now.Add(max(backoff(e.attempt-u.From, rand.Int64N), e.retryAfter))
	if e.outcome == lost {
		due = now
	}
	if u.Aside { // it was asked for however late it is
		return due, true
	}
	return due, !terms.Expired(u.NominalAt, due)
}
