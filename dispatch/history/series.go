package history

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Series says what happened to the ticks of a tenant, bucket by bucket. Its first bucket begins at From or before, at a multiple of Step
// since midnight UTC.
type Series struct {
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Step    string    `json:"step"`
	Buckets []Bucket  `json:"buckets"`
}

// Bucket is one step of a series. Due counts ticks by their nominal time; the others are counted when they happen. Fired counts ticks
// that were handed out, at their first attempt.
type Bucket struct {
	At        time.Time        `json:"at"`
	Due       int64            `json:"due"`
	Fired     int64            `json:"fired"`
	Succeeded int64            `json:"succeeded"`
	Failed    int64            `json:"failed"`
	Skipped   map[string]int64 `json:"skipped"` // by reason
	Cancelled int64            `json:"cancelled"`
	Retried   int64            `json:"retried"` // attempts after which another one follows
	Missed    int64            `json:"missed"`  // nominal times that later ticks stand for
	Lateness  BucketLateness   `json:"lateness_ms"`
}

// BucketLateness is the time from the nominal times of ticks until they were handed out, in milliseconds; null if none was handed out.
// Histogram has pairs of a bound and a count: so many ticks were at most so late, and later than half the bound. Its empty pairs are
// left out. The bound of the last pair is null for ticks that were later than all bounds.
type BucketLateness struct {
	P50       *float64    `json:"p50"`
	P99       *float64    `json:"p99"`
	Histogram [][2]*int64 `json:"histogram"`
}

// SeriesFilter picks the period, and a workflow or an endpoint where they are not empty.
type SeriesFilter struct {
	From, To time.Time
	Step     time.Duration
	Workflow string
	Endpoint string
}

// How long the series is kept, and how many buckets an answer has at most.
const (
	MinutesKept = 7 * record.Day
	HoursKept   = 90 * record.Day
	mostBuckets = 2000
)

// SeriesCounts are the columns of a series that count ticks, and SeriesSums their sums, in SQL.
const (
	SeriesCounts = `due, fired, succeeded, failed, cancelled, skipped, retried, missed`
	SeriesSums   = `sum(due)::bigint, sum(fired)::bigint, sum(succeeded)::bigint, sum(failed)::bigint,
			sum(cancelled)::bigint, sum(skipped)::bigint, sum(retried)::bigint, sum(missed)::bigint`
)

// seriesRow is a row of a series: the counts of one lateness and one reason.
type seriesRow struct {
	At     time.Time
	Bucket int16
	Reason record.Reason

	Due, Fired, Succeeded, Failed, Cancelled, Skipped, Retried, Missed int64
}

// Series returns a series of a tenant. It includes what is not folded yet. Steps of an hour and more go back 90 days, shorter ones a week;
// buckets before that are empty.
func (r *Reader) Series(ctx context.Context, tenant tenants.ID, f SeriesFilter) (view Series, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	from := f.From.UTC().Truncate(f.Step)
	view = Series{From: from, To: f.To.UTC(), Step: policy.FormatDuration(f.Step)}
	if f.To.Sub(from)/f.Step > mostBuckets+1 {
		return view, fault.Invalid("/step", "the period has more than %d such steps", mostBuckets)
	}
	for at := from; at.Before(f.To); at = at.Add(f.Step) {
		view.Buckets = append(view.Buckets, Bucket{At: at, Skipped: map[string]int64{}, Lateness: BucketLateness{Histogram: [][2]*int64{}}})
	}
	rows, err := r.readSeries(ctx, tenant, f, from)
	if err != nil {
		return view, err
	}
	fired := make([][record.LatenessBuckets + 1]int64, len(view.Buckets))
	for _, row := range rows {
		i := int(row.At.Sub(from) / f.Step)
		if i < 0 || i >= len(view.Buckets) {
			continue
		}
		view.Buckets[i].add(row)
		if row.Bucket >= 0 && int(row.Bucket) <= record.LatenessBuckets {
			fired[i][row.Bucket] += row.Fired
		}
	}
	for i := range view.Buckets {
		view.Buckets[i].Lateness = latenessOfCounts(fired[i][:])
	}
	return view, nil
}

func (b *Bucket) add(r seriesRow) {
	b.Due, b.Fired, b.Succeeded, b.Failed = b.Due+r.Due, b.Fired+r.Fired, b.Succeeded+r.Succeeded, b.Failed+r.Failed
	b.Cancelled, b.Retried, b.Missed = b.Cancelled+r.Cancelled, b.Retried+r.Retried, b.Missed+r.Missed
	if r.Skipped > 0 {
		b.Skipped[r.Reason.String()] += r.Skipped
	}
}

// SeriesFrom returns a query of the rows of one workflow and endpoint from a time on. The arguments are SQL expressions. The time is
// compared as a part of the key, so that only the primary key serves it: the other index by time has the rows of all tenants.
func SeriesFrom(columns, tenant, step, workflow, endpoint, from string) string {
	return `
			SELECT ` + columns + `
			FROM use_series
			WHERE tenant_id = ` + tenant + ` AND step = ` + step + ` AND workflow = ` + workflow + ` AND endpoint = ` + endpoint + `
				AND (tenant_id, step, workflow, endpoint, at) >= (` + strings.Join([]string{tenant, step, workflow, endpoint, from}, ", ") + `)`
}

// OfEachEndpoint returns a query that joins a LATERAL query, for each endpoint that a workflow had. The endpoints are found one after the
// other by the index, and are e.endpoint: a read of the workflow's rows in a period would otherwise go through all its rows, or through
// the rows of all workflows. The other arguments are SQL expressions.
func OfEachEndpoint(tenant, step, workflow, lateral string) string {
	rows := `FROM use_series WHERE tenant_id = ` + tenant + ` AND step = ` + step + ` AND workflow = ` + workflow
	return `
			WITH RECURSIVE endpoints AS (
				(SELECT endpoint ` + rows + ` ORDER BY endpoint LIMIT 1)
				UNION ALL
				SELECT (SELECT endpoint ` + rows + ` AND endpoint > e.endpoint ORDER BY endpoint LIMIT 1)
				FROM endpoints e
				WHERE e.endpoint IS NOT NULL
			)
			SELECT u.* FROM endpoints e CROSS JOIN LATERAL (` + lateral + ` OFFSET 0) u`
}

// readSeries reads the rows of a series, at most one a step, lateness and reason, and those that are not folded yet.
func (r *Reader) readSeries(ctx context.Context, tenant tenants.ID, f SeriesFilter, from time.Time) ([]seriesRow, error) {
	step := int16(1)
	if f.Step%time.Hour == 0 {
		step = 60
	}
	fresh := `true`
	if f.Workflow != "" {
		fresh = `d.workflow = $5`
	}
	if f.Endpoint != "" {
		fresh += ` AND EXISTS (SELECT FROM workflow w WHERE w.tenant_id = $1 AND w.name = d.workflow AND w.endpoint = $6)`
	}
	inPeriod := func(endpoint string) string {
		return SeriesFrom("at, bucket, reason, "+SeriesCounts, "$1", "$2", "$5", endpoint, "$3") + ` AND at < $4`
	}
	folded := inPeriod("$6") // the sums of an endpoint, or of all together, and a workflow with its endpoint
	if f.Workflow != "" && f.Endpoint == "" {
		folded = OfEachEndpoint("$1", "$2", "$5", inPeriod("e.endpoint")) + ` WHERE $6 = ''`
	}
	rows, _ := r.api.Query(ctx, `
		SELECT date_bin($7::interval, at, '2000-01-01Z') AS at, bucket, reason, `+SeriesSums+`
		FROM (
			(`+folded+`)
			UNION ALL
			SELECT minute, bucket, reason, `+SeriesCounts+`
			FROM daily_use_delta d
			WHERE tenant_id = $1 AND minute >= $3 AND minute < $4 AND `+fresh+` AND `+postgres.Unfolded("daily_use_delta")+` AND ($5::text, $6::text) IS NOT NULL
		) u
		GROUP BY 1, 2, 3`, tenant, step, from, f.To, f.Workflow, f.Endpoint, f.Step) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[seriesRow])
	if err != nil {
		return nil, fmt.Errorf("read series: %w", err)
	}
	return found, nil
}

// latenessOfCounts returns the lateness of ticks that are counted by bucket.
func latenessOfCounts(counts []int64) BucketLateness {
	l := BucketLateness{Histogram: [][2]*int64{}, P50: Percentile(counts, 0.5), P99: Percentile(counts, 0.99)}
	for i, n := range counts {
		switch {
		case n == 0:
		case i == record.LatenessBuckets:
			l.Histogram = append(l.Histogram, [2]*int64{nil, new(n)})
		default:
			l.Histogram = append(l.Histogram, [2]*int64{new(record.LatenessBound(int16(i)).Milliseconds()), new(n)})
		}
	}
	return l
}

// Percentile returns about the lateness in milliseconds that a part of counted ticks does not exceed; nil if there are none. Within a
// bucket the ticks count as evenly spread. A tick beyond the last bound counts as twice that late at most.
func Percentile(counts []int64, part float64) *float64 {
	all := int64(0)
	for _, n := range counts {
		all += n
	}
	if all == 0 {
		return nil
	}
	rank, below := part*float64(all), int64(0)
	for i, n := range counts {
		if n == 0 || float64(below+n) < rank {
			below += n
			continue
		}
		high := float64(record.LatenessBound(int16(i)).Milliseconds())
		low := high / 2
		if i == 0 {
			low = 0
		}
		at := low + (high-low)*(rank-float64(below))/float64(n)
		return new(math.Round(at*10) / 10)
	}
	return new(float64(record.LatenessBound(record.LatenessBuckets).Milliseconds()))
}
