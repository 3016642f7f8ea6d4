package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/carillonhq/carillon/internal/instant"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// errRaced says that another transaction changed the schedule after it was read and before it was locked. The transaction is tried again.
var errRaced = errors.New("the schedule changed while it was read")

const mostRaces = 5

// change holds the tenant whose schedules are changed, who changes them, when, and the quotas of the tenant.
type change struct {
	tenant tenants.ID
	by     string
	now    time.Time
	quotas tenants.Quotas
}

func versionOf(r *row) int64 {
	if r == nil {
		return 0
	}
	return int64(r.Version)
}

// changeOne runs fn in a transaction that holds the shared lock of a schedule's shard, with the schedule's row locked (nil if there is
// none) and the database's clock read under the lock. follows returns the subject that the schedule may begin to follow, or ""; the
// profile of that subject cannot change until the transaction ends. A nil follows means that there is no such subject.
func (s *Schedules) changeOne(ctx context.Context, of policy.Name, by string, follows func(ctx context.Context, tx pgx.Tx) (subject string, err error), fn func(ctx context.Context, b *batch, r *row) error) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	over, err := s.Forecasts.ShardsFor(ctx, of.Tenant)
	if err != nil {
		return err
	}
	name, newborn := []scheduleName{{of.Workflow, of.Key}}, []int16{cohorts.ShardFor(of.Tenant, over, of.Workflow, of.Key)}
	return raced(func() error {
		return postgres.Retry(ctx, func() error { // the end of a tick locks in another order than handing out, and may deadlock with it
			return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
				if err := lockFollowed(ctx, tx, of.Tenant, follows); err != nil {
					return err
				}
				b := s.newBatch(tx, change{tenant: of.Tenant, by: by})
				rows, err := b.lockNamed(ctx, name, newborn)
				if err != nil {
					return err
				}
				if rows[0] != nil {
					if err := b.prepare(ctx, rows, nil); err != nil {
						return err
					}
				}
				return fn(ctx, b, rows[0])
			})
		})
	})
}

// lockFollowed locks the subject that a schedule may begin to follow, before any lock of a shard or a row.
func lockFollowed(ctx context.Context, tx pgx.Tx, tenant tenants.ID, follows func(ctx context.Context, tx pgx.Tx) (string, error)) error {
	if follows == nil {
		return nil
	}
	subject, err := follows(ctx, tx)
	if err != nil || subject == "" {
		return err
	}
	return cohorts.LockSubjects(ctx, tx, tenant, cohorts.ToFollow, subject)
}

// raced tries fn again while others change what it reads.
func raced(fn func() error) error {
	for range mostRaces {
		if err := fn(); !errors.Is(err, errRaced) {
			return err
		}
	}
	busy := fault.Unavailable("busy", "the schedule is being changed by others; try again")
	busy.RetryAfter = time.Second
	return busy
}

// audited is a schedule as the audit shows it: its definition without the payload, and all else that a client may change.
type audited struct {
	Version     int32             `json:"version"`
	Status      string            `json:"status"`
	Spec        json.RawMessage   `json:"spec"`
	Policy      policy.Policy     `json:"policy"`
	Delivery    policy.Delivery   `json:"delivery"`
	Subject     *string           `json:"subject,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Note        *string           `json:"note,omitempty"`
	PausedUntil *time.Time        `json:"paused_until,omitempty"`
	PausedBy    *string           `json:"paused_by,omitempty"`
	Skips       []time.Time       `json:"skips,omitempty"`
	Moves       []cohorts.Moved   `json:"moves,omitempty"`
}

func (r *row) audited() *audited {
	a := &audited{
		Version: r.Version, Status: r.Status, Spec: json.RawMessage(r.Spec), Subject: r.Subject, Labels: r.Labels, Note: r.Note,
		PausedUntil: instant.UTC(r.PausedUntil), PausedBy: r.PausedBy, Skips: r.Skips, Moves: r.Moves,
	}
	a.Policy, a.Delivery = r.Stored.Stated()
	return a
}

// audit returns a change of the schedule for the audit. before and after may be nil.
func (r *row) audit(action string, before, after *audited) tenants.Change {
	c := tenants.Change{Action: "schedule." + action, Target: tenants.ScheduleTarget(r.Workflow, r.Key), Subject: r.subject()}
	if before != nil {
		c.Before = before
	}
	if after != nil {
		c.After = after
	}
	return c
}
