package history

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// DeadGroup are dead letters of one workflow that failed alike.
type DeadGroup struct {
	Workflow string    `json:"workflow"`
	Endpoint *string   `json:"endpoint"` // that the workflow has now; null: workers pull
	Error    string    `json:"error"`    // the first line of the errors; * stands for a number or an id, which differs among them
	Count    int64     `json:"count"`
	FirstAt  time.Time `json:"first_at"` // the earliest nominal time
	LastAt   time.Time `json:"last_at"`
	SampleID string    `json:"sample_tick_id"` // of the latest
}

// DeadGroups are the groups of a tenant's dead letters, the largest first.
type DeadGroups struct {
	Items     []DeadGroup `json:"items"`
	Truncated bool        `json:"truncated"` // only the latest dead letters were counted, or only the largest groups are listed
}

const (
	mostGrouped    = 10_000 // dead letters, the latest by nominal time
	mostDeadGroups = 200
)

// DeadGroups groups the latest dead letters that a filter picks by workflow and error. Equal errors are counted first, because finding
// the part that errors share costs far more than comparing them.
func (r *Reader) DeadGroups(ctx context.Context, tenant tenants.ID, f DeadFilter) (all DeadGroups, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	retention, err := r.deadRetention(ctx, tenant)
	if err != nil {
		return all, err
	}
	args := []any{tenant, f.since(), f.Until(), retention, mostGrouped, mostDeadGroups + 1}
	source, args := f.source(args, `nominal_at >= $2 AND nominal_at < $3 AND failed_at > `+postgres.Now+` - $4::interval`, "$5")
	rows, _ := r.api.Query(ctx, `
		WITH latest AS MATERIALIZED (
			SELECT workflow, error, nominal_at, schedule_id, seq FROM (`+source+`) dead_letter
		), same AS MATERIALIZED (
			SELECT workflow, error AS text, `+alike+` AS error, count, first_at, last_at
			FROM (
				SELECT workflow, error, count(*) AS count, min(nominal_at) AS first_at, max(nominal_at) AS last_at
				FROM latest
				GROUP BY workflow, error
			) s
		)
		SELECT workflow, (SELECT endpoint FROM workflow w WHERE w.tenant_id = $1 AND w.name = g.workflow), error, count, first_at, last_at, sample.id, sample.seq, looked
		FROM (
			SELECT workflow, error, sum(count)::bigint AS count, min(first_at) AS first_at, max(last_at) AS last_at, (SELECT count(*) FROM latest) AS looked
			FROM same
			GROUP BY workflow, error
			ORDER BY count DESC, last_at DESC, workflow, error
			LIMIT $6
		) g
		CROSS JOIN LATERAL (
			SELECT l.schedule_id AS id, l.seq
			FROM (SELECT text FROM same s WHERE s.workflow = g.workflow AND s.error = g.error AND s.last_at = g.last_at LIMIT 1) s
			JOIN latest l ON l.workflow = g.workflow AND l.nominal_at = g.last_at AND l.error IS NOT DISTINCT FROM s.text
			LIMIT 1
		) sample
		ORDER BY count DESC, last_at DESC, workflow, error`, args...) // ForEachRow reports the error
	all.Items = []DeadGroup{}
	var g DeadGroup
	var schedule, looked int64
	var seq int32
	_, err = pgx.ForEachRow(rows, []any{&g.Workflow, &g.Endpoint, &g.Error, &g.Count, &g.FirstAt, &g.LastAt, &schedule, &seq, &looked}, func() error {
		one := g
		one.FirstAt, one.LastAt = g.FirstAt.UTC(), g.LastAt.UTC()
		one.SampleID = r.ids.Tick(ident.TickKey{Schedule: schedule, At: one.LastAt, Seq: seq})
		all.Items, g.Endpoint = append(all.Items, one), nil
		return nil
	})
	if err != nil {
		return all, fmt.Errorf("group dead letters: %w", err)
	}
	all.Truncated = looked == mostGrouped || len(all.Items) > mostDeadGroups
	all.Items = all.Items[:min(len(all.Items), mostDeadGroups)]
	return all, nil
}

// alike is the part of an error that those of one cause share: the first line, in which * stands for numbers of four or more digits and
// for ids.
const alike = `left(regexp_replace(split_part(COALESCE(error, ''), E'\n', 1), '[0-9A-Za-z_-]*[0-9]{4,}[0-9A-Za-z_-]*', '*', 'g'), 200)`
