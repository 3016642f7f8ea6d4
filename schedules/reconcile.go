package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Unlisted are the schedules of a filter that were made before a moment and that no list names, and what becomes of them.
type Unlisted struct {
	Tenant tenants.ID
	By     string
	Filter Filter // by workflow and prefix of keys
	Before time.Time
	Action string // pause or delete
	Dry    bool   // nothing is changed

	// Listed returns those of some keys that are listed. It is called in the transaction of a step.
	Listed func(ctx context.Context, tx pgx.Tx, keys []string) (map[string]bool, error)
}

// Reconcile pauses or deletes unlisted schedules, in the order of workflow and key, and returns how many. An error ends it; what was
// done by then stays.
func (s *Schedules) Reconcile(ctx context.Context, u Unlisted) (changed int, err error) {
	for at, done := (Position{}), false; !done; {
		if err := tenants.CheckAuthority(ctx); err != nil {
			return changed, err
		}
		var n int
		var next Position
		err := postgres.Retry(ctx, func() error {
			ctx, cancel := context.WithTimeout(ctx, batchTimeout)
			defer cancel()
			err := pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) (err error) {
				if n, next, done, err = s.reconcileNext(ctx, tx, u, at); err == nil && u.Dry {
					return errDry
				}
				return err
			})
			if errors.Is(err, errDry) {
				return nil
			}
			return err
		})
		if err != nil {
			return changed, err
		}
		changed, at = changed+n, next
	}
	return changed, nil
}

// reconcileNext does so to the next candidates after a position, and says how far it has come.
func (s *Schedules) reconcileNext(ctx context.Context, tx pgx.Tx, u Unlisted, at Position) (n int, next Position, done bool, err error) {
	found, err := candidates(ctx, tx, u.Tenant, u.Filter, at)
	if err != nil {
		return 0, at, false, err
	}
	keys := make([]string, len(found))
	for i, c := range found {
		keys[i] = c.Key
	}
	listed, err := u.Listed(ctx, tx, keys)
	if err != nil || len(found) == 0 {
		return 0, at, err == nil, err
	}
	end := found[len(found)-1]
	next, done = Position{Workflow: end.Workflow, Key: end.Key}, len(found) < mostTogether
	found = slices.DeleteFunc(found, func(c candidate) bool { return listed[c.Key] })
	if len(found) == 0 {
		return 0, next, done, nil
	}
	a := acting{batch: s.newBatch(tx, change{tenant: u.Tenant, by: u.By}), action: u.Action}
	a.batch.dry = u.Dry
	err = a.run(ctx, found, func(r *row, _ *time.Time) bool {
		return !r.CreatedAt.After(u.Before) && (u.Action == actDelete || r.Status == policy.Active || r.PausedUntil != nil)
	})
	return int(a.counts[acted[u.Action]]), next, done, err
}

// Count returns how many schedules a filter by workflow and prefix of keys picks.
func (s *Schedules) Count(ctx context.Context, tenant tenants.ID, f Filter) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	where, args := f.where("s", tenant, Position{}, nil)
	if err := s.Pool.QueryRow(ctx, `SELECT count(*) FROM schedule s WHERE `+where, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count schedules: %w", err)
	}
	return n, nil
}
