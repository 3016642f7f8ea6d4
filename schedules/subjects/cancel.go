package subjects

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Withdraw cancels ticks of schedules that have not ended, up to most, in the caller's transaction. It tells running ticks to stop. It
// returns how many there were, and whether there are more.
type Withdraw func(ctx context.Context, tx pgx.Tx, tenant tenants.ID, schedules []int64, most int) (ticks int, more bool, err error)

// CancelParams restrict a cancellation to a workflow, or to schedules with a label (name:value). Empty members restrict nothing.
type CancelParams struct {
	Workflow string `json:"workflow,omitempty"`
	Label    string `json:"label,omitempty"`
}

func (p CancelParams) check() error {
	var errs []error
	if p.Workflow != "" {
		errs = append(errs, policy.CheckName("/workflow", "workflow", p.Workflow))
	}
	return fault.Join(append(errs, schedules.Filter{Label: p.Label}.Check(""))...)
}

// Cancelled is what a cancellation did: how many schedules it deleted, and how many ticks it cancelled or told to stop.
type Cancelled struct {
	Schedules int `json:"schedules"`
	Ticks     int `json:"ticks"`
}

// Cancelling is a cancellation that an operation carries out.
type Cancelling struct {
	Operation operations.Answer `json:"operation"`
}

const (
	mostCancelled = 1000 // schedules, and ticks, in the transaction of a request
	cancelStep    = 200  // in a step of an operation
	cancelKind    = "cancel_subject"
)

// cancelling are the stored params of the operation.
type cancelling struct {
	Subject string `json:"subject"`
	CancelParams

	begun time.Time // schedules that are made later stay; zero: there are none
}

// errMany says that a subject has too many schedules or ticks for one transaction.
var errMany = errors.New("the subject has many schedules or ticks")

// Cancel deletes the schedules of a subject, and cancels its ticks that have not ended. A tick that a worker or an endpoint has is told
// to stop. The profile and the history stay. Where there are more than 1,000 schedules or ticks, it begins an operation and returns it.
// replayed reports that the result is that of an earlier request with the same Idempotency-Key.
func (ss *Subjects) Cancel(ctx context.Context, tenant tenants.ID, subject string, p CancelParams, by schedules.Changer) (done Cancelled, begun *Cancelling, replayed bool, err error) {
	if err := fault.Join(policy.CheckSubject("/subject", subject), p.check()); err != nil {
		return done, nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	all := cancelling{Subject: subject, CancelParams: p}
	result, replayed, err := ss.cancelOnce(ctx, tenant, all, by, func(tx pgx.Tx) (cancelResult, error) {
		n, more, err := ss.cancelPart(ctx, tx, tenant, all, by.By, mostCancelled)
		if err == nil && more {
			err = errMany
		}
		if err != nil || n == (Cancelled{}) {
			return cancelResult{Done: n}, err
		}
		return cancelResult{Done: n}, tenants.Audit(ctx, tx, tenant, by.By, all.change(n))
	})
	if errors.Is(err, errMany) {
		result, replayed, err = ss.cancelOnce(ctx, tenant, all, by, func(tx pgx.Tx) (cancelResult, error) {
			op, err := ss.operations.Begin(ctx, tx, operations.Request{Tenant: tenant, Kind: cancelKind, Subject: subject, By: by.By, Params: all})
			return cancelResult{Begun: &Cancelling{op}}, err
		})
	}
	return result.Done, result.Begun, replayed, err
}

// cancelResult is what is kept for an Idempotency-Key.
type cancelResult struct {
	Done  Cancelled   `json:"done"`
	Begun *Cancelling `json:"begun,omitempty"`
}

// cancelOnce locks a subject, and then cancels in the same transaction, once for each Idempotency-Key.
func (ss *Subjects) cancelOnce(ctx context.Context, tenant tenants.ID, all cancelling, by schedules.Changer, cancel func(tx pgx.Tx) (cancelResult, error)) (result cancelResult, replayed bool, err error) {
	err = postgres.Retry(ctx, func() error { // it may deadlock with the end of a tick that is handed out meanwhile
		return pgx.BeginFunc(ctx, ss.pool, func(tx pgx.Tx) error {
			if err := cohorts.LockSubjects(ctx, tx, tenant, cohorts.ToChange, all.Subject); err != nil {
				return err
			}
			result, replayed, err = once.Do(ctx, tx, int32(tenant), by.Once, func() (cancelResult, error) { return cancel(tx) })
			return err
		})
	})
	return result, replayed, err
}

// change is the cancellation as the audit shows it.
func (p cancelling) change(n Cancelled) tenants.Change {
	return tenants.Change{
		Action: "subject.cancel", Target: "subjects/" + url.PathEscape(p.Subject), Subject: p.Subject,
		After: map[string]any{"workflow": p.Workflow, "label": p.Label, "schedules": n.Schedules, "ticks": n.Ticks},
	}
}

// cancelStep cancels the next part of a subject's schedules and ticks.
func (ss *Subjects) cancelStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var p cancelling
	if _, err := op.Read(&p, nil); err != nil {
		return false, err
	}
	if p.Subject, err = schedules.LockOperationSubject(ctx, tx, op, cohorts.ToChange); err != nil || p.Subject == "" {
		return err == nil, err
	}
	p.begun = op.Begun
	n, more, err := ss.cancelPart(ctx, tx, op.Tenant, p, op.By, cancelStep)
	if err != nil {
		return false, err
	}
	op.Done += int64(n.Schedules)
	op.Count("schedules", int64(n.Schedules))
	op.Count("ticks", int64(n.Ticks))
	if err := op.Keep(struct{}{}); err != nil || more {
		return false, err
	}
	all := Cancelled{Schedules: int(op.Counts["schedules"]), Ticks: int(op.Counts["ticks"])}
	return true, tenants.Audit(ctx, tx, op.Tenant, op.By, p.change(all))
}

// cancelPart cancels up to most ticks of a locked subject, and deletes up to most of its schedules whose ticks are all cancelled. more
// reports that something is left.
func (ss *Subjects) cancelPart(ctx context.Context, tx pgx.Tx, tenant tenants.ID, p cancelling, by string, most int) (n Cancelled, more bool, err error) {
	found, err := find(ctx, tx, tenant, p.Subject)
	if err != nil {
		return n, false, err
	}
	live, deleted, err := p.restrict(ctx, tx, tenant, found)
	if err != nil {
		return n, false, err
	}
	if more = len(live) > most; more {
		live = live[:most]
	}
	ids := belongings{live: live}.ids()
	if err := schedules.LockRows(ctx, tx, tenant, shardsOf(live), ids); err != nil {
		return n, false, err
	}
	ticks, left, err := ss.withdraw(ctx, tx, tenant, ids, most)
	if err != nil || left {
		return Cancelled{Ticks: ticks}, true, err
	}
	n.Ticks = ticks
	if n.Schedules, err = ss.schedules.DeleteLocked(ctx, tx, tenant, ids, by); err != nil || more {
		return n, more, err
	}
	ticks, more, err = ss.withdraw(ctx, tx, tenant, deleted, most)
	n.Ticks += ticks
	return n, more, err
}

func shardsOf(live []belonging) []int16 {
	shards := make([]int16, len(live))
	for i, s := range live {
		shards[i] = s.Shard
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}

// restrict returns those of a subject's schedules, and of its deleted ones, that the params pick.
func (p cancelling) restrict(ctx context.Context, tx pgx.Tx, tenant tenants.ID, found belongings) (live []belonging, deleted []int64, err error) {
	slices.SortFunc(found.live, func(a, b belonging) int { return int(a.ID - b.ID) })
	if p.Workflow == "" && p.Label == "" && p.begun.IsZero() {
		return found.live, found.deleted, nil
	}
	name, value, _ := strings.Cut(p.Label, ":")
	var begun *time.Time
	if !p.begun.IsZero() {
		begun = &p.begun
	}
	rows, _ := tx.Query(ctx, `
		SELECT id FROM schedule
		WHERE tenant_id = $1 AND id = ANY($2) AND ($4 = '' OR workflow = $4) AND ($5 = '' OR labels ->> $5 = $6)
			AND ($7::timestamptz IS NULL OR created_at <= $7)
		UNION ALL
		SELECT schedule_id FROM revision
		WHERE tenant_id = $1 AND schedule_id = ANY($3) AND deleted AND ($4 = '' OR workflow = $4) AND ($5 = '' OR labels ->> $5 = $6)`,
		tenant, found.ids(), found.deleted, p.Workflow, name, value, begun) // CollectRows reports the error
	picked, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, nil, fmt.Errorf("look for schedules of a subject: %w", err)
	}
	slices.Sort(picked)
	in := func(id int64) bool {
		_, ok := slices.BinarySearch(picked, id)
		return ok
	}
	live = slices.DeleteFunc(found.live, func(s belonging) bool { return !in(s.ID) })
	return live, slices.DeleteFunc(found.deleted, func(id int64) bool { return !in(id) }), nil
}
