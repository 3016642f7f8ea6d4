package schedules

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// fallbackKind is the kind of operation that a change of a fallback zone begins.
const fallbackKind = "fallback_timezone"

// fallbackChange holds the parameters of such an operation. The present fallback zone is read with each schedule.
type fallbackChange struct {
	Workflow string `json:"workflow,omitempty"` // empty: all workflows that name no zone themselves
	Timezone string `json:"timezone"`
}

// fallingBack is how far such an operation has come: it has waited for so many locks, and then passed the schedules up to an id.
type fallingBack struct {
	Waited int   `json:"waited"`
	ID     int64 `json:"id"`
}

// mostPassed is how many schedules one step of such an operation looks at. It retimes at most mostFollowers of them.
const mostPassed = 2000

// CheckZone returns the fault of a value that is no time zone, located at pointer.
func CheckZone(pointer, zone string) error {
	if zone == "" || cohorts.FollowsSubject(calendar.Spec{Timezone: zone}) {
		return fault.Invalid(pointer, "%q is not a time zone: name one such as Europe/Berlin", zone)
	}
	_, err := calendar.Compile(calendar.Spec{Timezone: zone, Cron: calendar.StringList{"@daily"}}, calendar.Context{})
	if faults, ok := errors.AsType[calendar.Faults](err); ok {
		return fault.Fields(fault.Field{Pointer: pointer, Code: faults[0].Code, Detail: faults[0].Detail})
	}
	return err
}

// fallBack begins the operation that retimes the schedules of a workflow whose subjects have no profile, if the change of the workflow's
// fallback zone gives them another one. Where no zone is left they keep the one that they have.
func (s *Schedules) fallBack(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflow string, was, is *string) error {
	if text(was) == text(is) {
		return nil
	}
	ofTenant, err := tenants.FallbackZone(ctx, tx, tenant)
	if err != nil {
		return err
	}
	zone := cmp.Or(text(is), ofTenant)
	if zone == "" || zone == cmp.Or(text(was), ofTenant) {
		return nil
	}
	_, err = s.Operations.Begin(ctx, tx, operations.Request{Tenant: tenant, Kind: fallbackKind, Params: fallbackChange{workflow, zone}, By: tenants.Actor(ctx)})
	return err
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// fallBackStep first waits for the transactions that read the old fallback zone and have not committed: those that put schedules hold a
// lock of their subject, and all others that time schedules hold a lock of the shard. Then it retimes the schedules that need the
// fallback zone.
func (s *Schedules) fallBackStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var p fallbackChange
	var at fallingBack
	if _, err := op.Read(&p, &at); err != nil {
		return false, err
	}
	if at.Waited < cohorts.SubjectShares+cohorts.Shards {
		if err := waitForZones(ctx, tx, at.Waited); err != nil {
			return false, err
		}
		at.Waited++
		return false, op.Keep(at)
	}
	found, last, done, err := withoutProfile(ctx, tx, op.Tenant, p.Workflow, at.ID)
	if err != nil {
		return false, err
	}
	retimed, err := s.retimeFollowers(ctx, tx, op.Tenant, found, op.By)
	if err != nil {
		return false, err
	}
	op.Done += int64(len(found))
	op.Count("retimed", int64(retimed))
	op.Count("unchanged", int64(len(found)-retimed))
	at.ID = last
	return done, op.Keep(at)
}

// waitForZones waits for the n-th of the locks under which transactions read fallback zones.
func waitForZones(ctx context.Context, tx pgx.Tx, n int) error {
	if n < cohorts.SubjectShares {
		return cohorts.WaitForFollowers(ctx, tx, n)
	}
	shard := int16(n - cohorts.SubjectShares)
	var b pgx.Batch
	cohorts.LockShard(&b, shard)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("wait for shard %d: %w", shard, err)
	}
	return nil
}

// withoutProfile returns the next schedules after an id that need the fallback zone of a workflow, or of the tenant if workflow is empty:
// they follow a subject that has no profile. last is the id that it came to, and done says that none come after.
func withoutProfile(ctx context.Context, tx pgx.Tx, tenant tenants.ID, workflow string, after int64) (found []follower, last int64, done bool, err error) {
	rows, _ := tx.Query(ctx, `
		SELECT s.id, s.shard, s.by_subject
			AND (s.workflow = $3 OR $3 = '' AND NOT EXISTS (SELECT FROM workflow WHERE tenant_id = $1 AND name = s.workflow AND fallback_timezone IS NOT NULL))
			AND NOT EXISTS (SELECT FROM subject_profile WHERE tenant_id = $1 AND subject = s.subject)
		FROM (
			SELECT id, shard, workflow, by_subject, COALESCE(subject, key) AS subject
			FROM schedule
			WHERE tenant_id = $1 AND id > $2
			ORDER BY id
			LIMIT $4) s
		ORDER BY s.id`, tenant, after, workflow, mostPassed) // ForEachRow reports the error
	var f follower
	var needs bool
	seen, last := 0, after
	_, err = pgx.ForEachRow(rows, []any{&f.ID, &f.Shard, &needs}, func() error {
		if len(found) == mostFollowers {
			return nil
		}
		seen, last = seen+1, f.ID
		if needs {
			found = append(found, f)
		}
		return nil
	})
	if err != nil {
		return nil, after, false, fmt.Errorf("look for schedules of subjects without a profile: %w", err)
	}
	return found, last, seen < mostPassed && len(found) < mostFollowers, nil
}
