package dispatch

import (
	"context"
	"errors"
	"fmt"
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

// readMembers reads the members of the cohorts past their cursors, at most each of one cohort, cohort after cohort, until
// most are read. Those to whom the run's nominal time does not count are left out.
func readMembers(ctx context.Context, tx pgx.Tx, cohorts []*due, most, each int) (members [][]member, read int, err error) {
	ids, spreads, after, upto := make([]int64, len(cohorts)), make([]int64, len(cohorts)), make([]int64, len(cohorts)), make([]int64, len(cohorts))
	owners := make([]int32, len(cohorts))
	for i, c := range cohorts {
		ids[i], owners[i] = c.ID, int32(c.TenantID)
		c.fromSpread, c.fromID, upto[i] = c.start()
		spreads[i], after[i] = c.fromSpread, c.fromID
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
			LIMIT $7
		) m
		LIMIT $5`, ids, spreads, after, owners, most+1, upto, each+1)
	if err != nil {
		return nil, 0, fmt.Errorf("read members: %w", err)
	}
	members = make([][]member, len(cohorts))
	reached, ofOne := 0, 0
	var ord int
	var m member
	var from time.Time
	var until *time.Time
	_, err = pgx.ForEachRow(rows, []any{&ord, &m.spread, &m.id, &from, &until}, func() error {
		i := ord - 1
		if i < reached {
			return errors.New("members came out of order")
		}
		if i > reached {
			reached, ofOne = i, 0
		}
		c := cohorts[i]
		if read++; read > most {
			return nil
		}
		if ofOne++; ofOne > each {
			c.cut = true
			return nil
		}
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
		c.begun = read <= most || i <= reached
		c.whole = (read <= most || i < reached) && !c.cut
		c.empty = c.whole && c.RunAt == nil && c.AtID == nil
	}
	return members, min(read, most), nil
}
