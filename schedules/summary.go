package schedules

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// Summary is a schedule in a list, without its payload and its note. LastOutcome is how its last finished tick ended: succeeded or failed;
// nil before the first one. Overdue says that a tick is due and was not handed out yet.
type Summary struct {
	Core
	LastOutcome *string `json:"last_outcome"`
	Overdue     bool    `json:"overdue"`
}

// byID looks each row up by an index, whatever the planner knows of the tables.
var byID = `SELECT ` + rowColumns + ` FROM (SELECT * FROM schedule WHERE tenant_id = $1 AND id = ANY($2) OFFSET 0) s ` + lookups + ` ORDER BY s.workflow, s.key`

// Summaries returns schedules by their numbers, in the order of workflow and key, as far as they exist and web.MostPage bytes hold
// them. It also returns the moment as of which they are shown.
func (s *Schedules) Summaries(ctx context.Context, tenant tenants.ID, ids []int64) (list []Summary, now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	rows, _, now, err := readRows(ctx, s.Pool, len(ids), web.MostPage, byID, tenant, ids)
	defer web.Done(ctx, rows, (*row).held)
	if err != nil {
		return nil, now, err
	}
	shown, err := s.show(ctx, tenant, rows, now)
	if err != nil {
		return nil, now, err
	}
	list = make([]Summary, len(shown))
	for i, one := range shown {
		list[i] = rows[i].summary(one, now)
	}
	return list, now, nil
}

// summary returns what a list shows of a schedule as of now.
func (r *row) summary(one Schedule, now time.Time) Summary {
	return Summary{Core: one.Core, Overdue: one.NextAt != nil && !one.NextAt.After(now), LastOutcome: r.lastOutcome()}
}

// lastOutcome returns how the last finished tick of a schedule ended.
func (r *row) lastOutcome() *string {
	switch {
	case r.FailuresInARow > 0:
		return new("failed")
	case r.Succeeded > 0 || r.Failed > 0:
		return new("succeeded")
	}
	return nil
}
