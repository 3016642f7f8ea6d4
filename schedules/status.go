package schedules

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/runs"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// PauseParams say until when a schedule does not fire (absent: without end), and why. Until is rounded up to a whole second.
type PauseParams struct {
	Until *time.Time `json:"until,omitempty" null:"yes"`
	Note  *string    `json:"note,omitempty"`
}

// ResumeParams ask for one tick at once if any was missed while the schedule was paused.
type ResumeParams struct {
	FireOnce bool `json:"fire_once,omitempty"`
}

// Changer says who changes a schedule, on what precondition, and in which request. A client may send the same request twice.
type Changer struct {
	By   string
	Pre  version.Precondition
	Once once.Request
}

// Pause stops a schedule from firing. One that is paused already in this way stays as it is.
func (s *Schedules) Pause(ctx context.Context, tenant tenants.ID, workflow, key string, p PauseParams, by Changer) (out Schedule, replayed bool, err error) {
	return s.pause(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, p, by, nil)
}

// pause pauses a schedule. If it does, and happened is not nil, it records that event.
func (s *Schedules) pause(ctx context.Context, of policy.Name, p PauseParams, by Changer, happened *tenants.Happening) (out Schedule, replayed bool, err error) {
	tenant := of.Tenant
	if p.Note != nil && len(*p.Note) > longestNote {
		return out, false, fault.Invalid("/note", "a note has at most %d bytes", longestNote)
	}
	if p.Until != nil {
		p.Until = new(wholeSecond(*p.Until))
		if p.Until.Year() > 9999 {
			return out, false, fault.Invalid("/until", "the year must be at most 9999")
		}
	}
	return s.restatus(ctx, of, "pause", by, func(ctx context.Context, b *batch, w *rewrite, t *calendar.Timing) (bool, error) {
		r, now := w.row, b.now
		if p.Until != nil && !p.Until.After(now) {
			return false, fault.Invalid("/until", "%s has passed", p.Until.Format(time.RFC3339))
		}
		if r.Status == policy.Completed || r.Status == policy.Quarantined {
			return false, fault.Conflict("not_active", "the schedule is %s", r.Status)
		}
		if r.Status == policy.Paused && policy.Same(unix(r.PausedUntil), unix(p.Until)) && policy.Same(r.StatusNote, p.Note) && r.PausedBy == nil {
			if _, err := b.tx.Exec(ctx, forgetPauses, tenant, []int64{r.ID}); err != nil {
				return false, fmt.Errorf("forget the pause of an operation: %w", err)
			}
			return false, nil
		}
		b.writes.byHand = append(b.writes.byHand, r.ID)
		since := &now
		if r.PausedAt != nil {
			since = r.PausedAt
		}
		b.leave(r, t)
		r.Status, r.StatusNote, r.PausedAt, r.PausedUntil, r.PausedBy = policy.Paused, p.Note, since, p.Until, nil
		if happened != nil {
			if err := tenants.Happened(ctx, b.tx, tenant, *happened); err != nil {
				return false, err
			}
		}
		if p.Until == nil {
			return true, nil
		}
		return true, b.rearm(ctx, w, t)
	})
}

func unix(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	return new(t.Unix())
}

// Resume makes a paused schedule fire again from now on. It completes a schedule that has no nominal time left.
func (s *Schedules) Resume(ctx context.Context, tenant tenants.ID, workflow, key string, p ResumeParams, by Changer) (out Schedule, replayed bool, err error) {
	return s.restatus(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, "resume", by, func(ctx context.Context, b *batch, w *rewrite, t *calendar.Timing) (bool, error) {
		r, now := w.row, b.now
		if r.Status == policy.Active {
			return false, nil
		}
		if r.Status != policy.Paused {
			return false, fault.Conflict("not_paused", "the schedule is %s", r.Status)
		}
		since := r.PausedAt.UTC()
		b.leave(r, t)
		r.setStatus(policy.Active, now)
		after := now
		if sabotage.ResumeReplays.On() {
			after = since
		}
		if err := b.rejoin(ctx, w, t, after); err != nil {
			return false, err
		}
		last, ok := t.Prev(now.Truncate(time.Second).Add(time.Second))
		if !p.FireOnce || !ok || !last.At.After(since) {
			return true, nil
		}
		w.fire = &cohorts.Due{ // it has no cohort if the schedule ends with it
			Tenant: tenant, Shard: r.Shard, Schedule: r.ID, Run: runs.Run{At: last.At, DST: last.DST, From: last.At, Late: true},
			Missed: t.Count(since.Add(time.Microsecond), last.At), Forced: true,
		}
		return true, nil
	})
}

// restatus changes the state of a schedule that exists. fn makes the change, and reports whether the row is to be written.
func (s *Schedules) restatus(ctx context.Context, of policy.Name, action string, by Changer, fn func(context.Context, *batch, *rewrite, *calendar.Timing) (bool, error)) (out Schedule, replayed bool, err error) {
	err = s.changeOne(ctx, of, by.By, nil, func(ctx context.Context, b *batch, r *row) error {
		out, replayed, err = once.Do(ctx, b.tx, int32(of.Tenant), by.Once, func() (out Schedule, err error) {
			if r == nil {
				return out, absent(of.Workflow, of.Key)
			}
			if err := by.Pre.Check(true, versionOf(r)); err != nil {
				return out, err
			}
			t, err := r.timing(ctx, b.tx, s.Timings, of.Tenant)
			if errors.Is(err, cohorts.ErrUncomputable) {
				return out, fault.Conflict("not_active", "the schedule's spec can no longer be computed: put another")
			}
			if err != nil {
				return out, err
			}
			w := b.rewrite(r, t, action)
			changed, err := fn(ctx, b, w, t)
			if err != nil {
				return out, err
			}
			if changed {
				b.add(w, t)
			}
			if err := b.writeState(ctx, w); err != nil {
				return out, err
			}
			return r.schedule(ctx, b.tx, s, of.Tenant, b.now)
		})
		return err
	})
	return out, replayed, err
}

// writeState writes a row whose state has changed. A change that is not in the row, such as a skip, is only audited.
func (b *batch) writeState(ctx context.Context, w *rewrite) error {
	if len(b.writes.rows) == 0 {
		if reflect.DeepEqual(w.was, w.audited()) {
			return nil
		}
		return tenants.Audit(ctx, b.tx, b.tenant, b.by, w.row.audit(w.action, w.was, w.audited()))
	}
	if !w.quiet && (w.action != "pause" || w.was.Status == policy.Paused) { // to stop a schedule is always allowed
		if err := b.schedules.Forecasts.MayStore(ctx, b.tx, b.tenant, w.held()); err != nil {
			return err
		}
	}
	return b.write(ctx)
}

// Delete deletes a schedule. Its ticks that were due and not yet swept are recorded as cancelled. Its history stays.
func (s *Schedules) Delete(ctx context.Context, tenant tenants.ID, workflow, key string, by Changer) error {
	return s.changeOne(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, by.By, nil, func(ctx context.Context, b *batch, r *row) error {
		if r == nil {
			return absent(workflow, key)
		}
		if err := by.Pre.Check(true, versionOf(r)); err != nil {
			return err
		}
		if r.CohortID != nil {
			t, err := r.timing(ctx, b.tx, s.Timings, tenant)
			if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
				return err
			}
			b.leave(r, t)
		}
		b.writes.gone = append(b.writes.gone, r)
		b.writes.audits = append(b.writes.audits, r.audit("delete", r.audited(), nil))
		return b.write(ctx)
	})
}

// PauseFailing pauses a schedule whose ticks failed too often in a row, with a note that says so, and records the event for the tenant. It
// does nothing if the schedule is gone, is paused or has ended.
func (s *Schedules) PauseFailing(ctx context.Context, tenant tenants.ID, schedule int64, note string) error {
	ctx, cancel := context.WithTimeout(postgres.ForTenant(ctx, int32(tenant)), postgres.QueryTimeout)
	defer cancel()
	var workflow, key string
	var fires bool
	err := s.Pool.QueryRow(ctx, `
		SELECT workflow, key, status = 'active' OR COALESCE(paused_until <= `+postgres.Now+`, false)
		FROM schedule
		WHERE tenant_id = $1 AND id = $2`, tenant, schedule).Scan(&workflow, &key, &fires)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && !fires {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read schedule: %w", err)
	}
	happened := tenants.Happening{Event: tenants.ScheduleAutoPaused, Cause: workflow, Schedule: schedule, Data: map[string]string{"note": note}}
	_, _, err = s.pause(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, PauseParams{Note: &note}, Changer{By: "carillon"}, &happened)
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return nil
	}
	return err
}
