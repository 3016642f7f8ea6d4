package schedules

import (
	"context"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Put creates or replaces the schedule of a name, and returns it whole. made reports that it is new. If p says what is stored already,
// nothing is written.
func (s *Schedules) Put(ctx context.Context, of policy.Name, p Params, by string, pre version.Precondition) (out Schedule, made bool, err error) {
	tenant, workflow, key := of.Tenant, of.Workflow, of.Key
	if err := fault.Join(policy.CheckName("/workflow", "workflow", workflow), policy.CheckKey("/key", key)); err != nil {
		return out, false, err
	}
	quotas, err := s.Quotas(ctx, tenant)
	if err != nil {
		return out, false, err
	}
	d, err := p.read(quotas)
	if err != nil { // what is wrong with the spec is told beside it
		return out, false, fault.Join(err, s.checkSpec(ctx, of, p.Spec))
	}
	it := &Item{Workflow: workflow, Key: key, definition: d, pre: pre, whole: true, origin: tenants.OriginOf(ctx)}
	if err := s.puts.put(ctx, s, change{tenant: tenant, by: by, quotas: quotas}, it); err != nil {
		return out, false, err
	}
	return it.shown, it.Result == Inserted, nil
}

// checkSpec compiles a spec as it would be put now.
func (s *Schedules) checkSpec(ctx context.Context, of policy.Name, spec calendar.Spec) error {
	d := definition{spec: spec}
	if err := d.follow(ctx, s.Pool, of); err != nil {
		return err
	}
	if err := d.consult(ctx, s.Pool, s.Timings, of.Tenant); err != nil {
		return err
	}
	identity := cohorts.Identity(of.Tenant, of.Workflow, of.Key)
	_, err := cohorts.Compile(spec, d.almanac.In(d.profile.Context(wholeSecond(time.Now()), identity)))
	return err
}

// putAlone puts one item in a transaction of its own.
func (s *Schedules) putAlone(ctx context.Context, c change, it *Item) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	err := raced(func() error { return s.storePuts(ctx, c, []*Item{it}) })
	if err == nil && it.Result == Failed {
		return it.Fault
	}
	return err
}
