package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/schedules"
)

// member is a member of a cohort as the sweep reads it.
type member struct {
	id, spread int64
	missed     int
	own        *schedules.Run // where its last time came before the run's
}

// readMembers reads the members of the cohorts past their cursors, cohort after cohort, until mostTicks are read. Those
// to whom the run's nominal time does not count are left out.
func readMembers(ctx context.Context, tx pgx.Tx, cohorts []*due) (members [][]member, read int, err error) {
	ids, spreads, after, upto := make([]int64, len(cohorts)), make([]int64, len(cohorts)), make([]int64, len(cohorts)), make([]int64, len(cohorts))
	owners := make([]int32, len(cohorts))
	for i, c := range cohorts {
		ids[i], spreads[i], after[i], upto[i], owners[i] = c.ID, math.MinInt64, -1, math.MaxInt64, int32(c.TenantID)
		switch {
		case c.leg != nil:
			spreads[i], after[i], upto[i] = c.leg.After, c.leg.AfterID, c.leg.Upto
		case c.RunAt != nil:
			spreads[i], after[i] = *c.AtSpread, *c.AtID
		}
	}
	// A nested loop over the cohorts as given: no other plan is open to a LATERAL with a LIMIT.
	rows, err := tx.Query(ctx, `
		SELECT c.ord::int, m.spread, m.schedule_id, m.from_at, m.until_at
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[], $6::bigint[]) WITH ORDINALITY AS c (id, spread, after, tenant_id, upto, ord)
		CROSS JOIN LATERAL (
			SELECT spread, schedule_id, from_at, until_at
			FROM member
			WHERE cohort_id = c.id AND tenant_id = c.tenant_id AND (spread, schedule_id) > (c.spread, c.after) AND spread <= c.upto
			ORDER BY spread, schedule_id
			LIMIT $5
		) m
		LIMIT $5`, ids, spreads, after, owners, mostTicks+1, upto)
	if err != nil {
		return nil, 0, fmt.Errorf("read members: %w", err)
	}
	members = make([][]member, len(cohorts))
	reached := 0
	var ord int
	var m member
	var from time.Time
	var until *time.Time
	_, err = pgx.ForEachRow(rows, []any{&ord, &m.spread, &m.id, &from, &until}, func() error {
		i := ord - 1
		if i < reached {
			return errors.New("members came out of order")
		}
		reached = i
		if read++; read > mostTicks {
			return nil
		}
		c := cohorts[i]
		c.AtSpread, c.AtID = new(m.spread), new(m.id)
		own, counts := c.run.For(c.timing, from, until)
		if !counts {
			return nil
		}
		m.missed, m.own = own.Missed, nil
		if !own.At.Equal(c.run.At) {
			m.own = &own
		}
		members[i] = append(members[i], m)
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read members: %w", err)
	}
	for i, c := range cohorts {
		c.begun = read <= mostTicks || i <= reached
		c.whole = read <= mostTicks || i < reached
		c.empty = c.whole && c.RunAt == nil && c.AtID == nil
	}
	return members, min(read, mostTicks), nil
}
