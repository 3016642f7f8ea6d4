package schedules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

// Patch is a merge patch (RFC 7396) of a schedule's definition. Its members are those of Params; null restores the default of a member.
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

// Patch applies a merge patch to a schedule, and returns the whole schedule. It stores the result as Put does: if nothing differs from
// what is stored, it writes nothing.
func (s *Schedules) Patch(ctx context.Context, of policy.Name, patch Patch, by string, pre version.Precondition) (out Schedule, err error) {
	quotas, err := s.Quotas(ctx, of.Tenant)
	if err != nil {
		return out, err
	}
	ahead := s.Forecasts.Of(ctx, of.Tenant)
	var subject string // whose lock the transaction holds; "": the patch leaves subject and zone as they are
	follows := func(ctx context.Context, tx pgx.Tx) (string, error) {
		subject, err = patch.followed(ctx, tx, of)
		return subject, err
	}
	err = s.changeOne(ctx, of, by, follows, func(ctx context.Context, b *batch, r *row) error {
		if r == nil {
			return absent(of.Workflow, of.Key)
		}
		if err := pre.Check(true, versionOf(r)); err != nil {
			return err
		}
		b.quotas = quotas
		p := r.Profile()
		if subject != "" {
			follower := cohorts.Follower{Workflow: of.Workflow, Subject: subject}
			found, err := cohorts.ReadProfiles(ctx, b.tx, of.Tenant, follower)
			if err != nil {
				return err
			}
			p = found[follower]
		}
		d, err := s.patched(ctx, b.tx, r, patch, p, b.change)
		if err != nil {
			return err
		}
		if subject != "" && cohorts.FollowsSubject(d.spec) && subject != cmp.Or(d.subject, of.Key) {
			return errRaced
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

// followed returns the subject that the patch may make a schedule follow. It is "" if the patch names neither a subject nor the zone of
// the subject.
func (p Patch) followed(ctx context.Context, tx pgx.Tx, of policy.Name) (subject string, err error) {
	var params Params
	if err := web.UnmarshalPatch(p, &params); err != nil {
		return "", err
	}
	list, _ := members(p)
	if slices.ContainsFunc(list, func(m member) bool { return m.name == "subject" }) {
		return cmp.Or(params.Subject, of.Key), nil
	}
	if !cohorts.FollowsSubject(params.Spec) {
		return "", nil
	}
	err = tx.QueryRow(ctx, `SELECT COALESCE(subject, key) FROM schedule WHERE tenant_id = $1 AND workflow = $2 AND key = $3`, of.Tenant, of.Workflow, of.Key).Scan(&subject)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("read the subject of a schedule: %w", err)
	}
	return subject, nil
}

// patched returns the row's definition with a patch merged into it, under the profile of its subject.
func (s *Schedules) patched(ctx context.Context, tx pgx.Tx, r *row, patch Patch, profile cohorts.Profile, c change) (d definition, err error) {
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
	if cohorts.FollowsSubject(p.Spec) {
		d.profile = profile
	}
	if err != nil && d.specText != r.Spec { // what is wrong with the spec is told beside it
		_, specErr := cohorts.Compile(p.Spec, d.almanac.In(d.profile.Context(r.AnchorAt, r.stored(tenant).Identity())))
		err = fault.Join(err, specErr)
	}
	d.note.removed = patch.removes("note") // which is gone once it is merged
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
	if r.Subject != nil {
		subject, err := json.Marshal(*r.Subject)
		if err != nil {
			return nil, fmt.Errorf("write subject of schedule %d: %w", r.ID, err)
		}
		list = append(list, member{"subject", subject})
	}
	if r.Payload != nil {
		list = append(list, member{"payload", json.RawMessage(*r.Payload)})
	}
	return object(list)
}
