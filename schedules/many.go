package schedules

import (
	"context"
	"strconv"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// ManyParams name schedules of one workflow.
type ManyParams struct {
	Workflow string   `json:"workflow"`
	Keys     []string `json:"keys" validate:"min=1,max=1000"`
}

var manyRows = `SELECT ` + rowColumns + ` FROM (SELECT * FROM schedule WHERE tenant_id = $1 AND workflow = $2 AND key = ANY($3) OFFSET 0) s ` + lookups

// Many calls write with the schedules of up to 1,000 keys of a workflow, in the order of the
// keys, some at a time. It leaves out keys without a schedule. If the schedules hold more than
// web.MostPage bytes, it reads fewer keys at once. Many ends with the first error of write.
func (s *Schedules) Many(ctx context.Context, tenant tenants.ID, p ManyParams, write func([]Schedule) error) error {
	errs := []error{policy.CheckName("/workflow", "workflow", p.Workflow)}
	for i, key := range p.Keys {
		errs = append(errs, policy.CheckKey("/keys/"+strconv.Itoa(i), key))
	}
	if err := fault.Join(errs...); err != nil {
		return err
	}
	for rest, n := p.Keys, len(p.Keys); len(rest) > 0; {
		n = min(n, len(rest))
		items, fit, err := s.some(ctx, tenant, p.Workflow, rest[:n])
		if err != nil {
			return err
		}
		if fit < n {
			n = max(1, fit/2)
			continue
		}
		if err := write(items); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// some reads the schedules of keys. If they hold too many bytes, it returns none
// of them; fit is then how many it could read, and less than the number of keys.
func (s *Schedules) some(ctx context.Context, tenant tenants.ID, workflow string, keys []string) (items []Schedule, fit int, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	found, full, now, err := readRows(ctx, s.Pool, len(keys), web.MostPage, manyRows, tenant, workflow, keys)
	defer web.Done(ctx, found, (*row).held)
	if err != nil {
		return nil, 0, err
	}
	if full {
		return nil, len(found), nil
	}
	shown, err := s.show(ctx, tenant, found, now)
	if err != nil {
		return nil, 0, err
	}
	byKey := make(map[string]*Schedule, len(shown))
	for i := range shown {
		byKey[shown[i].Key] = &shown[i]
	}
	items = make([]Schedule, 0, len(shown))
	for _, key := range keys {
		if one, ok := byKey[key]; ok {
			items = append(items, *one)
		}
	}
	return items, len(keys), nil
}

// show returns rows of one tenant as clients see them now. It reads their timings in one query.
func (s *Schedules) show(ctx context.Context, tenant tenants.ID, rows []*row, now time.Time) ([]Schedule, error) {
	if err := fetchTimings(ctx, s.Pool, s.Timings, tenant, rows); err != nil {
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
