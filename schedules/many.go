package schedules

import (
	"context"
	"strconv"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/tenants"
)

// ManyParams name schedules of one workflow.
type ManyParams struct {
	Workflow string   `json:"workflow"`
	Keys     []string `json:"keys" validate:"min=1,max=1000"`
}

const manyRows = `SELECT ` + rowColumns + ` FROM ` + rowTables + `
	WHERE s.tenant_id = $1 AND s.workflow = $2 AND s.key = ANY($3)`

// Many returns the schedules of up to 1,000 keys of a workflow, in the order of the keys; those that are not there are
// left out.
func (s *Schedules) Many(ctx context.Context, tenant tenants.ID, p ManyParams) ([]Schedule, error) {
	errs := []error{CheckName("/workflow", "workflow", p.Workflow)}
	for i, key := range p.Keys {
		errs = append(errs, checkKey("/keys/"+strconv.Itoa(i), key))
	}
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	found, now, err := readRows(ctx, s.Pool, manyRows, tenant, p.Workflow, p.Keys)
	if err != nil {
		return nil, err
	}
	shown, err := s.show(ctx, tenant, found, now)
	if err != nil {
		return nil, err
	}
	byKey := make(map[string]Schedule, len(shown))
	for _, one := range shown {
		byKey[one.Key] = one
	}
	items := make([]Schedule, 0, len(shown))
	for _, key := range p.Keys {
		if one, ok := byKey[key]; ok {
			items = append(items, one)
		}
	}
	return items, nil
}

// show are rows of one tenant as of now, their timings read in one query.
func (s *Schedules) show(ctx context.Context, tenant tenants.ID, rows []*row, now time.Time) ([]Schedule, error) {
	if err := s.Timings.fetch(ctx, s.Pool, tenant, rows); err != nil {
		return nil, err
	}
	shown := make([]Schedule, len(rows))
	for i, r := range rows {
		one, err := r.schedule(ctx, s.Pool, s, tenant, now)
		if err != nil {
			return nil, err
		}
		shown[i] = one
	}
	return shown, nil
}
