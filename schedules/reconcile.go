package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	Filter Filter // by workflow and prefix of keys, or by label
	Before time.Time
	Action string // pause or delete
	Dry    bool   // nothing is changed

	// Listed returns those of some schedules that are listed. It is called in the transaction of a step.
	Listed func(ctx context.Context, tx pgx.Tx, some []Position) (map[Position]bool, error)
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

// reconcileNext pauses or deletes the unlisted schedules among the next candidates after a position. It returns the position after them.
func (s *Schedules) reconcileNext(ctx context.Context, tx pgx.Tx, u Unlisted, at Position) (n int, next Position, done bool, err error) {
	found, err := candidates(ctx, tx, u.Tenant, u.Filter, at, mostTogether)
	if err != nil {
		return 0, at, false, err
	}
	names := make([]Position, len(found))
	for i, c := range found {
		names[i] = c.place()
	}
	listed, err := u.Listed(ctx, tx, names)
	if err != nil || len(found) == 0 {
		return 0, at, err == nil, err
	}
	next, done = names[len(names)-1], len(found) < mostTogether
	found = slices.DeleteFunc(found, func(c candidate) bool { return listed[c.place()] })
	if len(found) == 0 {
		return 0, next, done, nil
	}
	a := acting{batch: s.newBatch(tx, change{tenant: u.Tenant, by: u.By}), action: u.Action, sync: true}
	a.batch.dry = u.Dry
	err = a.run(ctx, found, func(r *row, _ *time.Time) bool {
		return !r.CreatedAt.After(u.Before) && u.Filter.labels(r) && (u.Action == actDelete || r.Status == policy.Active || r.PausedUntil != nil)
	})
	return int(a.counts[acted[u.Action]]), next, done, err
}

// labels reports whether a row has the label of the filter. The row may have lost the label after it was found and before it was locked.
func (f Filter) labels(r *row) bool {
	name, value, wanted := strings.Cut(f.Label, ":")
	if !wanted {
		return true
	}
	has, there := r.Labels[name]
	return there && has == value
}

// Count returns how many schedules a filter picks, by workflow and prefix of keys or by label.
func (s *Schedules) Count(ctx context.Context, tenant tenants.ID, f Filter) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	by, tables := f.source()
	where, args := f.where(by, tenant, Position{}, nil)
	if err := s.Pool.QueryRow(ctx, `SELECT count(*) FROM `+tables+` WHERE `+where, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count schedules: %w", err)
	}
	return n, nil
}
