package schedules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// ActionParams ask for one action on many schedules: those that a filter picks, or those of keys, each written as workflow/key.
type ActionParams struct {
	Action string        `json:"action"`
	Filter *ActionFilter `json:"filter,omitempty"`
	Keys   []string      `json:"keys,omitempty" validate:"max=1000"`
	Note   *string       `json:"note,omitempty"`                                      // why; a pause shows it as the status note
	Until  *time.Time    `json:"until,omitempty" null:"yes"`                          // of a pause
	Count  *int          `json:"count,omitempty" validate:"omitempty,min=1,max=1000"` // of skip: how many coming ticks; 1 if omitted
	Patch  web.Raw       `json:"patch,omitempty"`                                     // of patch: a merge patch of each definition
	DryRun bool          `json:"dry_run,omitempty"`
}

// ActionFilter is a list's filter, or names the operation whose pause is to be undone. A filter that restricts nothing states All.
type ActionFilter struct {
	All         bool       `json:"all,omitempty"`
	Workflow    string     `json:"workflow,omitempty"`
	Status      string     `json:"status,omitempty"`
	Key         string     `json:"key,omitempty"`
	KeyPrefix   string     `json:"key_prefix,omitempty"`
	KeyContains string     `json:"key_contains,omitempty"`
	Subject     string     `json:"subject,omitempty"`
	Label       string     `json:"label,omitempty"`
	Timezone    string     `json:"timezone,omitempty"`
	Calendar    string     `json:"calendar,omitempty"`
	Failing     bool       `json:"failing,omitempty"`
	DueBefore   *time.Time `json:"due_before,omitempty" null:"yes"`
	Operation   string     `json:"operation,omitempty"` // the schedules that this operation paused and that nobody has resumed or paused since
}

func (f ActionFilter) filter() Filter {
	listed := Filter{
		Workflow: f.Workflow, Status: f.Status, Key: f.Key, KeyPrefix: f.KeyPrefix, KeyContains: f.KeyContains, Subject: f.Subject,
		Label: f.Label, Timezone: f.Timezone, Calendar: f.Calendar, Failing: f.Failing,
	}
	if f.DueBefore != nil {
		listed.DueBefore = f.DueBefore.UTC()
	}
	return listed
}

// What an action can be.
const (
	actPause   = "pause"
	actResume  = "resume"
	actDelete  = "delete"
	actRetime  = "retime"
	actSkip    = "skip"
	actPatch   = "patch"
	actTrigger = "trigger"
)

var actions = []string{actPause, actResume, actDelete, actRetime, actSkip, actPatch, actTrigger}

func (p ActionParams) check() error {
	var errs []error
	if !slices.Contains(actions, p.Action) {
		errs = append(errs, fault.Invalid("/action", "%q is not one of %s", p.Action, strings.Join(actions, ", ")))
	}
	switch {
	case (p.Filter == nil) == (p.Keys == nil):
		errs = append(errs, fault.Invalid("/filter", "give either filter or keys, not both"))
	case p.Filter != nil:
		errs = append(errs, p.Filter.check())
	case len(p.Keys) == 0:
		errs = append(errs, fault.Invalid("/keys", "names no schedule"))
	}
	if p.Note != nil && len(*p.Note) > longestNote {
		errs = append(errs, fault.Invalid("/note", "a note has at most %d bytes", longestNote))
	}
	only := func(pointer, action string, given bool) {
		if given && p.Action != action {
			errs = append(errs, fault.Invalid(pointer, "only the action %s accepts this member", action))
		}
	}
	only("/until", actPause, p.Until != nil)
	only("/count", actSkip, p.Count != nil)
	only("/patch", actPatch, p.Patch != nil)
	if p.Until != nil && p.Until.Year() > 9999 {
		errs = append(errs, fault.Invalid("/until", "the year must be at most 9999"))
	}
	if p.Action == actPatch {
		errs = append(errs, p.checkPatch())
	}
	return fault.Join(errs...)
}

func (f ActionFilter) check() error {
	none := f.filter() == Filter{} && f.Operation == ""
	switch {
	case none && !f.All:
		return fault.Invalid("/filter", "the filter restricts nothing: set all to true to select every schedule of the tenant")
	case !none && f.All:
		return fault.Invalid("/filter/all", "all cannot be combined with other members")
	case f.Operation != "" && f.filter() != Filter{}:
		return fault.Invalid("/filter/operation", "operation cannot be combined with other members")
	}
	return f.filter().Check("/filter")
}

// Actions does one action to many schedules.
type Actions struct {
	Schedules *Schedules

	trigger func(ctx context.Context, tx pgx.Tx, of policy.Name) error
}

// NewActions returns Actions, and registers their kind of operation. trigger makes a manual tick of a schedule at once.
func NewActions(s *Schedules, trigger func(ctx context.Context, tx pgx.Tx, of policy.Name) error) *Actions {
	a := &Actions{Schedules: s, trigger: trigger}
	if s.Operations != nil {
		s.Operations.Register(operations.ActionsKind, a.actStep)
	}
	return a
}

// actionWork is an action as an operation stores and shows it. The schedules that keys named are in the cursor by their numbers, so
// that an operation holds no key that would outlive the erasure of its subject.
type actionWork struct {
	Action string        `json:"action"`
	Filter *ActionFilter `json:"filter,omitempty"`
	Named  int           `json:"named,omitempty"` // how many schedules keys named
	Note   *string       `json:"note,omitempty"`
	Until  *time.Time    `json:"until,omitempty"`
	Count  int           `json:"count,omitempty"`
	Patch  web.Raw       `json:"patch,omitempty"`
}

// actionPlace is how far an action has come.
type actionPlace struct {
	Position
	IDs    []int64 `json:"ids,omitempty"`    // the schedules that keys named and that are still to be done
	Absent int     `json:"absent,omitempty"` // how many keys named no schedule, until that is counted

	Refused map[string]int64 `json:"refused,omitempty"` // how many patches were refused, by code
}

// Act begins an operation that does an action to each schedule that is picked and that exists when the operation begins.
func (a *Actions) Act(ctx context.Context, tenant tenants.ID, p ActionParams, by Changer) (op operations.Answer, replayed bool, err error) {
	if err := p.check(); err != nil {
		return op, false, err
	}
	work := actionWork{Action: p.Action, Filter: p.Filter, Named: len(p.Keys), Note: p.Note, Until: p.Until, Patch: p.Patch}
	if p.Action == actSkip {
		work.Count = 1
		if p.Count != nil {
			work.Count = *p.Count
		}
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, a.Schedules.Pool, func(tx pgx.Tx) error {
		op, replayed, err = once.Do(ctx, tx, int32(tenant), by.Once, func() (op operations.Answer, err error) {
			begun := operations.Request{Tenant: tenant, Kind: operations.ActionsKind, Params: work, By: by.By}
			if p.Until != nil {
				var passed bool
				if err := tx.QueryRow(ctx, `SELECT $1::timestamptz <= `+postgres.Now, p.Until).Scan(&passed); err != nil {
					return op, fmt.Errorf("read clock: %w", err)
				}
				if passed {
					return op, fault.Invalid("/until", "%s has passed", p.Until.Format(time.RFC3339))
				}
			}
			if p.Filter != nil {
				begun.Subject = cmp.Or(p.Filter.Key, p.Filter.KeyPrefix, p.Filter.KeyContains, p.Filter.Subject)
				if err := a.mayUndo(ctx, tx, tenant, p.Filter.Operation); err != nil {
					return op, err
				}
			} else if begun.Cursor, err = named(ctx, tx, tenant, p.Keys); err != nil {
				return op, err
			}
			return a.Schedules.Operations.Begin(ctx, tx, begun)
		})
		return err
	})
	return op, replayed, err
}

// named finds the schedules that keys name.
func named(ctx context.Context, db postgres.DB, tenant tenants.ID, keys []string) (at actionPlace, err error) {
	names, errs := map[scheduleName]bool{}, []error(nil)
	for i, key := range keys {
		workflow, key, divided := strings.Cut(key, "/")
		pointer := "/keys/" + strconv.Itoa(i)
		if !divided {
			errs = append(errs, fault.Invalid(pointer, "%q is not workflow/key", workflow))
			continue
		}
		errs = append(errs, policy.CheckName(pointer, "workflow", workflow), policy.CheckKey(pointer, key))
		names[scheduleName{workflow, key}] = true
	}
	if err := fault.Join(errs...); err != nil {
		return at, err
	}
	var workflows, each []string
	for name := range names {
		workflows, each = append(workflows, name.workflow), append(each, name.key)
	}
	if err := db.QueryRow(ctx, `SELECT `+namedIDs, tenant, workflows, each).Scan(&at.IDs); err != nil {
		return at, fmt.Errorf("find schedules: %w", err)
	}
	slices.Sort(at.IDs)
	at.Absent = len(names) - len(at.IDs)
	return at, nil
}

// mayUndo returns a fault unless an operation, if one is given, has ended and was a pause.
func (a *Actions) mayUndo(ctx context.Context, db postgres.DB, tenant tenants.ID, operation string) error {
	if operation == "" {
		return nil
	}
	var kind, action string
	var ended bool
	number, ok := a.Schedules.IDs.ParseOperation(operation)
	err := pgx.ErrNoRows
	if ok {
		err = db.QueryRow(ctx, `SELECT kind, COALESCE(params ->> 'action', ''), ended_at IS NOT NULL FROM operation WHERE tenant_id = $1 AND id = $2`,
			tenant, number).Scan(&kind, &action, &ended)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fault.Invalid("/filter/operation", "no operation %q; operations are kept for seven days after their end", operation)
	case err != nil:
		return fmt.Errorf("read operation: %w", err)
	case kind != operations.ActionsKind || action != actPause:
		return fault.Invalid("/filter/operation", "operation %q paused no schedules", operation)
	case !ended:
		return fault.Conflict("operation_running", "operation %q still pauses schedules: cancel it, or wait for its end", operation)
	}
	return nil
}
