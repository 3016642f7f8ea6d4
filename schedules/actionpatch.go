package schedules

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// checkPatch returns the faults of the merge patch of an action.
func (p ActionParams) checkPatch() error {
	if p.Patch == nil {
		return fault.Invalid("/patch", "the action patch needs a merge patch")
	}
	read, err := ReadPatch(p.Patch)
	if err != nil {
		return below("/patch", err)
	}
	list, _ := members(read)
	if slices.ContainsFunc(list, func(m member) bool { return m.name == "subject" }) {
		return fault.Invalid("/patch/subject", "many schedules cannot get the same subject; change each schedule by itself")
	}
	return nil
}

// below returns err with the pointers of its fields below a prefix.
func below(prefix string, err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	if len(f.Fields) == 0 {
		return fault.Invalid(prefix, "%s", f.Detail)
	}
	fields := slices.Clone(f.Fields)
	for i := range fields {
		fields[i].Pointer = prefix + strings.TrimSuffix("/"+strings.TrimPrefix(fields[i].Pointer, "/"), "/")
	}
	return fault.Fields(fields...)
}

// patch merges the patch into the definitions of the candidates that are picked. A schedule for which the result is not valid stays as
// it is, and is counted as refused.
func (a *acting) patch(ctx context.Context, found []candidate, picked func(r *row, next *time.Time) bool) error {
	b := a.batch
	if err := a.lookAhead(ctx); err != nil {
		return err
	}
	profiles, err := a.lockProfiles(ctx, found)
	if err != nil {
		return err
	}
	if err := lockShards(ctx, b.tx, found); err != nil {
		return err
	}
	rows, err := b.lockRows(ctx, numbers(found))
	if err != nil {
		return err
	}
	if err := fetchTimings(ctx, b.tx, b.schedules.Timings, b.tenant, rows); err != nil {
		return err
	}
	definitions, delayed := make(map[int64]definition, len(rows)), map[int64]bool{}
	var changing []*row
	for _, r := range rows {
		t, err := a.timingOf(ctx, r)
		if err != nil {
			return err
		}
		if !picked(r, r.firesNext(t, b.now)) {
			continue
		}
		d, refused, err := a.patched(ctx, r, profiles)
		if err != nil {
			return err
		}
		if refused {
			continue
		}
		definitions[r.ID], delayed[r.ID] = d, hasDelay(d.spec)
		changing = append(changing, r)
		b.space.bytes += d.held()
	}
	if err := b.lockDelays(ctx, changing, delayed); err != nil {
		return err
	}
	for _, r := range changing {
		w, err := b.redefine(ctx, r, definitions[r.ID], "")
		refused, err := a.refused(err)
		switch {
		case err != nil:
			return err
		case w != nil:
			a.counts[acted[actPatch]]++
		case !refused:
			a.counts[countUnchanged]++
		}
	}
	return b.write(ctx)
}

// lookAhead reads the quotas and the projected ticks of the tenant, against which changed definitions are checked.
func (a *acting) lookAhead(ctx context.Context) (err error) {
	ctx = postgres.ForTenant(ctx, int32(a.batch.tenant))
	if a.batch.quotas, err = a.batch.schedules.Quotas(ctx, a.batch.tenant); err != nil {
		return err
	}
	a.batch.schedules.Forecasts.Of(ctx, a.batch.tenant)
	return nil
}

// lockProfiles locks the subjects of candidates if the patch makes them follow their subjects, and reads their profiles. The locks of
// subjects come before those of shards. A subject without a profile and without a fallback zone has an empty profile. It returns nil if
// the patch names another zone or none.
func (a *acting) lockProfiles(ctx context.Context, found []candidate) (map[cohorts.Follower]cohorts.Profile, error) {
	var params Params
	if err := web.UnmarshalPatch(a.asked.work.Patch, &params); err != nil {
		return nil, err
	}
	if !cohorts.FollowsSubject(params.Spec) {
		return nil, nil
	}
	subjects, followers := make([]string, len(found)), make([]cohorts.Follower, len(found))
	for i, c := range found {
		subjects[i], followers[i] = c.Subject, cohorts.Follower{Workflow: c.Workflow, Subject: c.Subject}
	}
	if err := cohorts.LockSubjects(ctx, a.batch.tx, a.batch.tenant, cohorts.ToFollow, subjects...); err != nil {
		return nil, err
	}
	profiles, err := cohorts.ReadProfiles(ctx, a.batch.tx, a.batch.tenant, followers...)
	if err != nil {
		return nil, err
	}
	for _, f := range followers {
		if _, found := profiles[f]; !found {
			profiles[f] = cohorts.Profile{}
		}
	}
	return profiles, nil
}

// patched returns the definition of a row with the patch merged into it. refused reports that the result is not valid, which is counted.
func (a *acting) patched(ctx context.Context, r *row, profiles map[cohorts.Follower]cohorts.Profile) (d definition, refused bool, err error) {
	p := r.Profile()
	if profiles != nil {
		found, locked := profiles[cohorts.Follower{Workflow: r.Workflow, Subject: r.subject()}]
		if !locked { // its subject was changed since we looked
			return d, false, errRaced
		}
		p = found
	}
	d, err = a.batch.schedules.patched(ctx, a.batch.tx, r, Patch(a.asked.work.Patch), p, a.batch.change)
	refused, err = a.refused(err)
	return d, refused, err
}

// refused counts a fault of one schedule by its code. It returns any other error.
func (a *acting) refused(err error) (bool, error) {
	if err == nil {
		return false, nil
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return false, err
	}
	a.counts[countRefused]++
	a.refusals[f.Code]++
	return true, nil
}
