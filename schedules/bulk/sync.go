package bulk

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// SyncParams say which schedules a sync is about, and what it may do. They are those of one workflow whose keys have a prefix, or those of
// all workflows that have a label.
type SyncParams struct {
	Workflow  string
	KeyPrefix string       // empty: all keys
	Label     string       // name:value; empty: those of the workflow
	Claim     string       // of a line whose schedule has another value of the label: any (or empty) takes the schedule, free refuses the line
	Unlisted  string       // what becomes of stored ones that are not listed: keep (or empty), pause, delete
	DryRun    bool         // nothing is changed, and all is told
	MaxChange *ChangeLimit // nil: no limit
}

// What a sync does with what is not listed.
const (
	unlistedKeep   = "keep"
	unlistedPause  = "pause"
	unlistedDelete = "delete"
)

// What a sync of a label does with a schedule that has another value of the label.
const (
	claimAny  = "any"
	claimFree = "free"
)

func (p SyncParams) check() error {
	var errs []error
	switch {
	case p.Label == "":
		errs = append(errs, policy.CheckName("/workflow", "workflow", p.Workflow))
	case p.Workflow != "" || p.KeyPrefix != "":
		errs = append(errs, fault.Invalid("/label", "a sync selects either a label or a workflow: omit label, or omit workflow and key_prefix"))
	default:
		errs = append(errs, p.scope().Check(""))
	}
	if p.KeyPrefix != "" {
		errs = append(errs, policy.CheckKey("/key_prefix", p.KeyPrefix))
	}
	if !slices.Contains([]string{"", claimAny, claimFree}, p.Claim) {
		errs = append(errs, fault.Invalid("/claim", "%q is not one of any, free", p.Claim))
	}
	if p.Claim != "" && p.Label == "" {
		errs = append(errs, fault.Invalid("/claim", "claim is allowed only with label"))
	}
	if !slices.Contains([]string{"", unlistedKeep, unlistedPause, unlistedDelete}, p.Unlisted) {
		errs = append(errs, fault.Invalid("/unlisted", "%q is not one of keep, pause, delete", p.Unlisted))
	}
	return fault.Join(errs...)
}

func (p SyncParams) scope() schedules.Filter {
	return schedules.Filter{Workflow: p.Workflow, KeyPrefix: p.KeyPrefix, Label: p.Label}
}

// ChangeLimit is how many stored schedules a sync may change: a number of them, or a share of all in its scope.
type ChangeLimit struct {
	number  int
	percent float64
	shared  bool
}

// ParseChangeLimit reads "5%" (or "0.5%") as a share, and "5" as a number.
func ParseChangeLimit(s string) (*ChangeLimit, error) {
	if share, ok := strings.CutSuffix(s, "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return nil, fault.Invalid("/max_change", "%q is not between 0%% and 100%%", s)
		}
		return &ChangeLimit{percent: percent, shared: true}, nil
	}
	number, err := strconv.Atoi(s)
	if err != nil || number < 0 {
		return nil, fault.Invalid("/max_change", "%q is neither a share such as 5%% nor a number", s)
	}
	return &ChangeLimit{number: number}, nil
}

func (l *ChangeLimit) allows(changed, stored int) bool {
	switch {
	case l == nil:
		return true
	case l.shared:
		return float64(changed)*100 <= l.percent*float64(stored)
	}
	return changed <= l.number
}

// SyncSummary counts the lines by what became of them, and the schedules that are not listed and were paused or deleted.
type SyncSummary struct {
	Summary
	Reconciled int `json:"reconciled"`
	Resumed    int `json:"resumed"` // updated ones that an earlier sync had paused
}

// syncing is one sync under way.
type syncing struct {
	bulk   *Bulk
	params SyncParams
	tenant tenants.ID
	by     string
	id     int64
	token  pgtype.UUID // tells it from a sync that got its number after a crash of the database
	begun  time.Time
	lines  int // that are staged
}

// Sync stores the schedules that body lists, and pauses or deletes the other schedules of its scope. It stages all lines
// before it changes anything; of one schedule the last line counts. Then it stores each line as Put would, resumes those that a sync
// had paused, and calls answer with the results
// of each batch in the order of the lines. Then, if no line was bad, it pauses or deletes the schedules that are not listed and were
// stored before the sync began. If it would change more than MaxChange allows, it changes nothing and returns a fault 409
// `too_many_changes`. Memory does not grow with the body. Sync closes body when it must stop reading.
func (s *Bulk) Sync(ctx context.Context, tenant tenants.ID, by string, p SyncParams, body io.ReadCloser, answer func([]Result) error) (sum SyncSummary, warnings []calendar.Warning, err error) {
	if err := p.check(); err != nil {
		return sum, nil, err
	}
	y := &syncing{bulk: s, params: p, tenant: tenant, by: by}
	if err := y.begin(ctx); err != nil {
		return sum, nil, err
	}
	defer y.end(ctx)
	if err := y.stage(ctx, body); err != nil {
		return sum, nil, err
	}
	if p.MaxChange != nil && !p.DryRun {
		planned, _, err := y.pass(ctx, true, func([]Result) error { return nil })
		if err != nil {
			return sum, nil, err
		}
		stored, err := y.stored(ctx)
		if err != nil {
			return sum, nil, err
		}
		if changed := planned.Updated + planned.Reconciled; !p.MaxChange.allows(changed, stored) {
			f := fault.Conflict("too_many_changes", "%d of %d schedules would be changed, and max_change does not allow it: nothing was changed", changed, stored)
			f.Extra = map[string]any{"summary": planned, "stored": stored}
			return planned, nil, f
		}
	}
	sum, warnings, err = y.pass(ctx, p.DryRun, answer)
	if p.DryRun {
		return sum, warnings, err
	}
	return sum, warnings, s.auditCall(ctx, caller{tenant, by}, "schedules/sync", sum, sum.Inserted+sum.Updated+sum.Reconciled, err)
}

// pass stores the staged lines, and then reconciles the schedules that are not listed. A dry pass only tells what would change.
func (y *syncing) pass(ctx context.Context, dry bool, answer func([]Result) error) (sum SyncSummary, warnings []calendar.Warning, err error) {
	warnings = []calendar.Warning{}
	reader := newReader(y.bulk, y.tenant, nil)
	reader.scope = &y.params
	told := 0
	for batches := 0; told < y.lines; batches++ {
		b, err := y.next(ctx, reader)
		if err != nil {
			return sum, nil, err
		}
		if err := y.bulk.storeBatch(ctx, y.tenant, y.by, b, dry); err != nil {
			return sum, nil, err
		}
		if batches < newTableBatches && !dry {
			if err := postgres.AnalyzeNew(ctx, y.bulk.pool); err != nil {
				y.bulk.log.Warn("cannot analyze new tables: query plans may be slow for a while", "error", err)
			}
		}
		for _, r := range b.results {
			sum.count(r)
			if r.resumed {
				sum.Resumed++
			}
		}
		told += len(b.results)
		if err := answer(b.results); err != nil {
			return sum, nil, err
		}
	}
	if y.params.Unlisted == unlistedPause || y.params.Unlisted == unlistedDelete {
		if sum.Errors > 0 {
			return sum, append(warnings, calendar.Warning{Code: "unlisted_untouched", Detail: "unlisted schedules are unchanged, because some lines have faults and may list them"}), nil
		}
		if sum.Reconciled, err = y.reconcile(ctx, dry); err != nil {
			return sum, nil, err
		}
	}
	if dry && y.params.MaxChange != nil {
		stored, err := y.stored(ctx)
		if err != nil {
			return sum, nil, err
		}
		if changed := sum.Updated + sum.Reconciled; !y.params.MaxChange.allows(changed, stored) {
			warnings = append(warnings, calendar.Warning{Code: "too_many_changes", Detail: fmt.Sprintf("%d of %d schedules would be changed, which max_change does not allow", changed, stored)})
		}
	}
	return sum, warnings, nil
}

// stored returns how many schedules there are in the scope.
func (y *syncing) stored(ctx context.Context) (int, error) {
	return y.bulk.schedules.Count(ctx, y.tenant, y.params.scope())
}

// reconcile pauses or deletes the schedules of the scope that were there when the sync began and that are not listed.
func (y *syncing) reconcile(ctx context.Context, dry bool) (int, error) {
	return y.bulk.schedules.Reconcile(ctx, schedules.Unlisted{
		Tenant: y.tenant, By: y.by, Filter: y.params.scope(), Before: y.begun, Action: y.params.Unlisted, Dry: dry, Listed: y.listed,
	})
}

// outOfScope returns a fault for a line whose schedule is not in the scope of the sync.
func (p *SyncParams) outOfScope(line Line, key string) error {
	var fields []fault.Field
	if name, value, labelled := strings.Cut(p.Label, ":"); labelled {
		has, there := line.Labels[name]
		if there && has == value {
			return nil
		}
		at := "/labels"
		if there {
			at += "/" + name // a valid name needs no escape
		}
		return fault.Fields(fault.Field{Pointer: at, Code: "out_of_scope", Detail: fmt.Sprintf("this sync is for schedules with the label %q: add the label to the schedule", p.Label)})
	}
	if line.Workflow != p.Workflow {
		fields = append(fields, fault.Field{Pointer: "/workflow", Code: "out_of_scope", Detail: fmt.Sprintf("the sync is of workflow %q", p.Workflow)})
	}
	if !strings.HasPrefix(key, p.KeyPrefix) {
		fields = append(fields, fault.Field{Pointer: "/key", Code: "out_of_scope", Detail: fmt.Sprintf("the sync is of keys that begin with %q", p.KeyPrefix)})
	}
	if fields == nil {
		return nil
	}
	return fault.Fields(fields...)
}

// stagingLost returns the fault of a sync whose staged lines are gone after a crash of the database: the client must send it again.
func stagingLost() error {
	lost := fault.Unavailable("unavailable", "the lines of this sync are lost, and unlisted schedules are unchanged: send the sync again")
	lost.RetryAfter = time.Second
	return lost
}
