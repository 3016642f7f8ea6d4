package schedules

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/jackc/pgx/v5"
)

// Patch is a merge patch (RFC 7396) of a schedule's definition: the members that Params have, of which null is the
// default again.
type Patch []byte

// ReadPatch checks that b is an object whose members are those of Params, each of its type or null.
func ReadPatch(b []byte) (Patch, error) {
	var p Params
	if err := web.UnmarshalPatch(b, &p); err != nil {
		return nil, err
	}
	if _, ok := members(b); !ok {
		return nil, fault.Invalid("", "a merge patch of a schedule is an object")
	}
	return b, nil
}

// Patch changes what a patch names in the schedule of a name, and returns the schedule whole. The result is stored as by Put: if it is what
// was stored, nothing is written.
func (s *Schedules) Patch(ctx context.Context, of policy.Name, patch Patch, by string, pre version.Precondition) (out Schedule, err error) {
	quotas, err := s.Quotas(ctx, of.Tenant)
	if err != nil {
		return out, err
	}
	ahead := s.Forecasts.Of(ctx, of.Tenant)
	follows := patch.follows()
	err = s.changeOne(ctx, of, by, follows, func(ctx context.Context, b *batch, r *row) error {
		if r == nil {
			return absent(of.Workflow, of.Key)
		}
		if err := pre.Check(true, versionOf(r)); err != nil {
			return err
		}
		b.quotas = quotas
		p := r.Profile()
		if follows {
			found, err := cohorts.ReadProfiles(ctx, b.tx, of.Tenant, of.Key)
			if err != nil {
				return err
			}
			p = found[of.Key]
		}
		d, err := s.patched(ctx, b.tx, r, patch, p, b.change)
		if err != nil {
			return err
		}
		if err := b.lockDelays(ctx, []*row{r}, map[int64]bool{r.ID: hasDelay(d.spec)}); err != nil {
			return err
		}
		if _, err := b.redefine(ctx, r, d, "patch"); err != nil {
			return err
		}
		if err := b.write(ctx); err != nil {
			return err
		}
		out, err = r.answer(ctx, b.tx, s, ahead, b.change)
		return err
	})
	return out, err
}

// follows reports whether the patch makes a schedule follow its key.
func (p Patch) follows() bool {
	var params Params
	return web.UnmarshalPatch(p, &params) == nil && cohorts.FollowsKey(params.Spec)
}

// patched returns the row's definition with a patch merged into it, under the profile of its key.
func (s *Schedules) patched(ctx context.Context, tx pgx.Tx, r *row, patch Patch, key cohorts.Profile, c change) (d definition, err error) {
	tenant := c.tenant
	stored, err := r.written()
	if err != nil {
		return d, err
	}
	merged, err := merge(stored, json.RawMessage(patch))
	if err != nil {
		return d, fmt.Errorf("merge: %w", err)
	}
	var p Params
	if err := web.Unmarshal(merged, &p); err != nil {
		return d, err
	}
	d, err = p.read(c.quotas)
	if err := d.consultHeld(ctx, tx, s.Timings, tenant); err != nil {
		return d, err
	}
	if cohorts.FollowsKey(p.Spec) {
		d.profile = key
	}
	if err != nil && d.specText != r.Spec { // what is wrong with the spec is told beside it
		_, specErr := cohorts.Compile(p.Spec, d.almanac.In(d.profile.Context(r.AnchorAt, r.stored(tenant).Identity())))
		err = fault.Join(err, specErr)
	}
	d.noteless = patch.removes("note") // which is gone once it is merged
	if patch.removes("status") {
		d.status = policy.Active
	}
	return d, err
}

// removes reports whether the patch sets a member of the definition to null.
func (p Patch) removes(name string) bool {
	list, _ := members(p)
	return slices.ContainsFunc(list, func(m member) bool { return m.name == name && isNull(m.value) })
}

// written returns the row's definition as a client would write it, without note and status, which stay if a patch leaves them out.
func (r *row) written() (json.RawMessage, error) {
	policy, delivery := r.Stored.Stated()
	list := []member{{"spec", json.RawMessage(r.Spec)}}
	for _, part := range []struct {
		name  string
		value any
	}{{"policy", policy}, {"delivery", delivery}, {"labels", r.Labels}} {
		b, err := json.Marshal(part.value)
		if err != nil {
			return nil, fmt.Errorf("write %s of schedule %d: %w", part.name, r.ID, err)
		}
		list = append(list, member{part.name, b})
	}
	if r.Payload != nil {
		list = append(list, member{"payload", json.RawMessage(*r.Payload)})
	}
	return object(list)
}
