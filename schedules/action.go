package schedules

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// ActionParams ask for one action on every schedule that a filter picks.
type ActionParams struct {
	Action string       `json:"action"`
	Filter ActionFilter `json:"filter"`
}

// ActionFilter is a list's filter. One that restricts nothing says so by All.
type ActionFilter struct {
	All       bool       `json:"all,omitempty"`
	Workflow  string     `json:"workflow,omitempty"`
	Status    string     `json:"status,omitempty"`
	KeyPrefix string     `json:"key_prefix,omitempty"`
	Label     string     `json:"label,omitempty"`
	DueBefore *time.Time `json:"due_before,omitempty" null:"yes"`
}

func (f ActionFilter) filter() Filter {
	listed := Filter{Workflow: f.Workflow, Status: f.Status, KeyPrefix: f.KeyPrefix, Label: f.Label}
	if f.DueBefore != nil {
		listed.DueBefore = f.DueBefore.UTC()
	}
	return listed
}

// What an action can be.
const (
	actPause  = "pause"
	actResume = "resume"
	actDelete = "delete"
	actRetime = "retime"
)

var actions = []string{actPause, actResume, actDelete, actRetime}

func (p ActionParams) check() error {
	var errs []error
	if !slices.Contains(actions, p.Action) {
		errs = append(errs, fault.Invalid("/action", "%q is not one of %s", p.Action, strings.Join(actions, ", ")))
	}
	none := p.Filter.filter() == Filter{}
	if none && !p.Filter.All {
		errs = append(errs, fault.Invalid("/filter", "it restricts nothing: for every schedule of the tenant say all"))
	}
	if !none && p.Filter.All {
		errs = append(errs, fault.Invalid("/filter/all", "all goes with nothing else"))
	}
	errs = append(errs, p.Filter.filter().Check("/filter"))
	return fault.Join(errs...)
}

// actionsKind is the kind of operation that Act begins.
const actionsKind = "actions"

// Act begins an operation that does an action to every schedule that the filter picks and that exists when the operation begins.
func (s *Schedules) Act(ctx context.Context, tenant tenants.ID, p ActionParams, by Changer) (op operations.Answer, replayed bool, err error) {
	if err := p.check(); err != nil {
		return op, false, err
	}
	begun := operations.Request{Tenant: tenant, Kind: actionsKind, Params: p, Subject: p.Filter.KeyPrefix, By: by.By}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		op, replayed, err = once.Do(ctx, tx, int32(tenant), by.Once, func() (operations.Answer, error) {
			return s.Operations.Begin(ctx, tx, begun)
		})
		return err
	})
	return op, replayed, err
}

// candidate is a schedule that may be picked. Conditions that no index covers are checked after it is locked.
type candidate struct {
	ID       int64
	Shard    int16
	Workflow string
	Key      string
}

// place returns where the candidate is in the order of workflow and key.
func (c candidate) place() Position { return Position{Workflow: c.Workflow, Key: c.Key} }

// candidates returns the next schedules, by workflow and key, in the range of the index that a filter picks.
func candidates(ctx context.Context, tx pgx.Tx, tenant tenants.ID, f Filter, after Position) ([]candidate, error) {
	f.Status, f.DueBefore = "", time.Time{}
	by, tables := "s", "schedule s"
	if f.Label != "" {
		by, tables = "l", "label l JOIN schedule s ON s.tenant_id = l.tenant_id AND s.workflow = l.workflow AND s.key = l.key"
	}
	where, args := f.where(by, tenant, after, nil)
	args = append(args, mostTogether)
	rows, _ := tx.Query(ctx, `
		SELECT s.id, s.shard, s.workflow, s.key
		FROM `+tables+`
		WHERE `+where+`
		ORDER BY `+by+`.workflow, `+by+`.key
		LIMIT $`+strconv.Itoa(len(args)), args...) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[candidate])
	if err != nil {
		return nil, fmt.Errorf("find schedules: %w", err)
	}
	return found, nil
}

// actStep acts on the next candidates.
func (s *Schedules) actStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var p ActionParams
	var at Position
	if _, err := op.Read(&p, &at); err != nil {
		return false, err
	}
	f := p.Filter.filter()
	w := walk{filter: f, after: at, action: p.Action, picked: func(r *row, next *time.Time) bool {
		return !r.CreatedAt.After(op.Begun) && (f.Status == "" || f.Status == r.Status) &&
			(f.DueBefore.IsZero() || next != nil && next.Before(f.DueBefore))
	}}
	done, last, err := s.step(ctx, tx, op, w)
	if err != nil {
		return false, err
	}
	return done, op.Keep(last)
}

// walk is an action on the schedules of a filter that are picked, in the order of workflow and key, after a position. next is when a
// schedule fires next.
type walk struct {
	filter Filter
	after  Position
	action string
	picked func(r *row, next *time.Time) bool
}

// step does the action of a walk to the next candidates, counts what came of it, and says how far it has come.
func (s *Schedules) step(ctx context.Context, tx pgx.Tx, op *operations.Operation, w walk) (done bool, last Position, err error) {
	found, err := candidates(ctx, tx, op.Tenant, w.filter, w.after)
	if err != nil || len(found) == 0 {
		return true, w.after, err
	}
	a := acting{batch: s.newBatch(tx, change{tenant: op.Tenant, by: op.By}), action: w.action}
	if err := a.run(ctx, found, w.picked); err != nil {
		return false, w.after, err
	}
	for what, n := range a.counts {
		op.Done += n
		op.Count(what, n)
	}
	end := found[len(found)-1]
	return len(found) < mostTogether, Position{Workflow: end.Workflow, Key: end.Key}, nil
}
