package carillon

import (
	"context"
	"time"
)

// SeriesParams select the buckets of a series.
type SeriesParams struct {
	From     time.Time     // zero: an hour before To
	To       time.Time     // zero: now
	Step     time.Duration // minutes or hours that divide a day; zero: the server chooses
	Workflow string        // one workflow, or the workflows of one Endpoint; empty: all
	Endpoint string
}

// Series is what happened to the ticks of a tenant, bucket by bucket.
type Series struct {
	From    time.Time      `json:"from"`
	To      time.Time      `json:"to"`
	Step    string         `json:"step"` // a duration
	Buckets []SeriesBucket `json:"buckets"`
}

// SeriesBucket counts what happened within one step.
type SeriesBucket struct {
	At         time.Time        `json:"at"`    // when it begins
	Due        int64            `json:"due"`   // ticks with a nominal time in it
	Fired      int64            `json:"fired"` // ticks that were handed out
	Succeeded  int64            `json:"succeeded"`
	Failed     int64            `json:"failed"`
	Skipped    map[string]int64 `json:"skipped"` // by reason
	Cancelled  int64            `json:"cancelled"`
	Retried    int64            `json:"retried"` // failed attempts before another one
	Missed     int64            `json:"missed"`  // nominal times that later ticks stand for
	LatenessMS BucketLateness   `json:"lateness_ms"`
}

// BucketLateness is the time from nominal times to handing out, in milliseconds.
type BucketLateness struct {
	P50 *float64 `json:"p50"` // nil: no tick was handed out
	P99 *float64 `json:"p99"`

	// Histogram has pairs of a bound and a count: so many ticks were at most so late, and later than half the bound. The bound of the last
	// pair may be nil, for ticks later than all bounds.
	Histogram [][]*int64 `json:"histogram"`
}

// Series returns what happened to the ticks, minute by minute for a week and hour by hour for 90 days.
func (a Admin) Series(ctx context.Context, p SeriesParams) (Series, error) {
	q := query{}
	q.time("from", p.From)
	q.time("to", p.To)
	if p.Step > 0 {
		q.text("step", duration(p.Step))
	}
	q.text("workflow", p.Workflow)
	q.text("endpoint", p.Endpoint)
	return get[Series](ctx, a.c, path("admin", "series"), q)
}
