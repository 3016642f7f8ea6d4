package schedules

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// PauseParams say until when a schedule does not fire (for good where absent), and why. A moment within a second is the
// end of that second.
type PauseParams struct {
	Until *time.Time `json:"until,omitempty" null:"yes"`
	Note  *string    `json:"note,omitempty"`
}

// ResumeParams ask for one tick at once if any was missed while the schedule was paused.
type ResumeParams struct {
	FireOnce bool `json:"fire_once,omitempty"`
}

// Changer is who changes a schedule, on what condition, and whether the request came before.
type Changer struct {
	By   string
	Pre  web.Precondition
	Once web.Once
}

// Pause stops a schedule from firing. One that is paused already in this way stays as it is.
func (s *Schedules) Pause(ctx context.Context, tenant tenants.ID, workflow, key string, p PauseParams, by Changer) (web.Reply, error) {
	return s.pause(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, p, by, nil)
}

// pause pauses a schedule. If it does, and happened is not nil, it records that event.
func (s *Schedules) pause(ctx context.Context, of policy.Name, p PauseParams, by Changer, happened *tenants.Happening) (web.Reply, error) {
	tenant := of.Tenant
	if p.Note != nil && len(*p.Note) > longestNote {
		return web.Reply{}, fault.Invalid("/note", "a note has at most %d bytes", longestNote)
	}
	if p.Until != nil {
		p.Until = new(wholeSecond(*p.Until))
		if p.Until.Year() > 9999 {
			return web.Reply{}, fault.Invalid("/until", "must be of a year up to 9999")
		}
	}
	return s.restatus(ctx, of, "pause", by, func(tx pgx.Tx, r *row, t *calendar.Timing, now time.Time) (bool, error) {
		if p.Until != nil && !p.Until.After(now) {
			return false, fault.Invalid("/until", "%s has passed", p.Until.Format(time.RFC3339))
		}
		if r.Status == Completed || r.Status == Quarantined {
			return false, fault.Conflict("not_active", "the schedule is %s", r.Status)
		}
		if r.Status == Paused && policy.Same(unix(r.PausedUntil), unix(p.Until)) && policy.Same(r.StatusNote, p.Note) {
			return false, nil
		}
		since := &now
		if r.PausedAt != nil {
			since = r.PausedAt
		}
		if err := r.leave(ctx, tx, s, tenant, t, now); err != nil {
			return false, err
		}
		r.Status, r.StatusNote, r.PausedAt, r.PausedUntil = Paused, p.Note, since, p.Until
		if happened != nil {
			if err := tenants.Happened(ctx, tx, tenant, *happened); err != nil {
				return false, err
			}
		}
		if p.Until == nil {
			return true, nil
		}
		return true, s.rearm(ctx, tx, r, t, change{tenant: tenant, by: by.By, now: now})
	})
}

func unix(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	return new(t.Unix())
}

// Resume has a paused schedule fire again from now on. One that has no nominal time left is completed.
func (s *Schedules) Resume(ctx context.Context, tenant tenants.ID, workflow, key string, p ResumeParams, by Changer) (web.Reply, error) {
	return s.restatus(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, "resume", by, func(tx pgx.Tx, r *row, t *calendar.Timing, now time.Time) (bool, error) {
		if r.Status == Active {
			return false, nil
		}
		if r.Status != Paused {
			return false, fault.Conflict("not_paused", "the schedule is %s", r.Status)
		}
		since := r.PausedAt.UTC()
		if err := r.leave(ctx, tx, s, tenant, t, now); err != nil {
			return false, err
		}
		r.setStatus(Active, now)
		after := now
		if sabotage.ResumeReplays.On() {
			after = since
		}
		joined, err := s.rejoined(ctx, tx, r, t, after, change{tenant: tenant, by: by.By, now: now})
		if err != nil {
			return false, err
		}
		var cohort int64 // 0: none, for a tick of a schedule that ends with it
		if joined {
			cohort = *r.CohortID
		} else {
			r.Status = Completed
		}
		last, ok := t.Prev(now.Truncate(time.Second).Add(time.Second))
		if !p.FireOnce || !ok || !last.At.After(since) {
			return true, nil
		}
		run := cohorts.Run{At: last.At, DST: last.DST, From: last.At, Late: true}
		return true, s.HandOut(ctx, tx, []Due{{
			Tenant: tenant, Shard: r.Shard, Cohort: cohort, Schedule: r.ID,
			Run: run, Missed: t.Count(since.Add(time.Microsecond), last.At), Forced: true,
		}})
	})
}

// rejoin makes a schedule that has left its cohort a member again, from after a moment on. It returns a fault if the schedule would
// never fire.
func (s *Schedules) rejoin(ctx context.Context, tx pgx.Tx, r *row, t *calendar.Timing, after time.Time, c change) error {
	joined, err := s.rejoined(ctx, tx, r, t, after, c)
	if err == nil && !joined {
		return neverFires()
	}
	return err
}

// rejoined does what rejoin does, but returns false if no nominal time is left.
func (s *Schedules) rejoined(ctx context.Context, tx pgx.Tx, r *row, t *calendar.Timing, after time.Time, c change) (bool, error) {
	joined, err := s.arm(ctx, tx, r, t, after, c)
	if err != nil || !joined {
		return false, err
	}
	return true, r.insertMember(ctx, tx, c.tenant)
}

// restatus changes the state of a schedule that exists. fn makes the change, and reports whether there is one.
func (s *Schedules) restatus(ctx context.Context, of policy.Name, action string, by Changer, fn func(pgx.Tx, *row, *calendar.Timing, time.Time) (bool, error)) (reply web.Reply, err error) {
	tenant := of.Tenant
	err = s.change(ctx, tenant, of.Workflow, of.Key, func(tx pgx.Tx, r *row, _ int16, now time.Time) error {
		reply, err = by.Once.Run(ctx, tx, int32(tenant), func() (int, any, error) {
			if r == nil {
				return 0, nil, absent(of.Workflow, of.Key)
			}
			if err := by.Pre.Check(true, versionOf(r)); err != nil {
				return 0, nil, err
			}
			t, err := r.timing(ctx, tx, s.Timings, tenant)
			if errors.Is(err, cohorts.ErrUncomputable) {
				return 0, nil, fault.Conflict("not_active", "the schedule's spec can no longer be computed: put another")
			}
			if err != nil {
				return 0, nil, err
			}
			next, was := r.coming(t, now), r.audited()
			changed, err := fn(tx, r, t, now)
			if err == nil && changed {
				err = s.update(ctx, tx, r, edit{action, next, was, t}, change{tenant: tenant, by: by.By, now: now})
			} else if err == nil && !reflect.DeepEqual(was, r.audited()) { // skips and moves make no version
				err = tenants.Audit(ctx, tx, tenant, by.By, r.audit(action, was, r.audited()))
			}
			if err != nil {
				return 0, nil, err
			}
			out, err := r.schedule(ctx, tx, s, tenant, now)
			return http.StatusOK, out, err
		})
		return err
	})
	return reply, err
}

// Delete ends a schedule. What was due and not yet swept is recorded as cancelled; its history stays.
func (s *Schedules) Delete(ctx context.Context, tenant tenants.ID, workflow, key string, by Changer) error {
	return s.change(ctx, tenant, workflow, key, func(tx pgx.Tx, r *row, _ int16, now time.Time) error {
		if r == nil {
			return absent(workflow, key)
		}
		if err := by.Pre.Check(true, versionOf(r)); err != nil {
			return err
		}
		if r.CohortID != nil {
			t, err := r.timing(ctx, tx, s.Timings, tenant)
			if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
				return err
			}
			if err := r.leave(ctx, tx, s, tenant, t, now); err != nil {
				return err
			}
		}
		if err := endVersion(ctx, tx, r.ID, true, change{tenant: tenant, by: by.By, now: now}); err != nil {
			return err
		}
		var b pgx.Batch
		b.Queue(`DELETE FROM schedule_state WHERE tenant_id = $1 AND schedule_id = $2`, tenant, r.ID)
		b.Queue(`DELETE FROM schedule WHERE tenant_id = $1 AND id = $2`, tenant, r.ID)
		if err := tenants.QueueAudit(ctx, &b, tenant, by.By, r.audit("delete", r.audited(), nil)); err != nil {
			return err
		}
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return fmt.Errorf("delete schedule: %w", err)
		}
		return nil
	})
}

// PauseFailing pauses a schedule whose ticks failed too often in a row, with a note that says so, and has the tenant told.
// One that is gone, paused or has ended is left alone.
func (s *Schedules) PauseFailing(ctx context.Context, tenant tenants.ID, schedule int64, note string) error {
	ctx, cancel := context.WithTimeout(postgres.ForTenant(ctx, int32(tenant)), postgres.QueryTimeout)
	defer cancel()
	var workflow, key, status string
	err := s.Pool.QueryRow(ctx, `
		SELECT workflow, key, status
		FROM schedule
		WHERE tenant_id = $1 AND id = $2`, tenant, schedule).Scan(&workflow, &key, &status)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && status != Active {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read schedule: %w", err)
	}
	happened := tenants.Happening{Event: tenants.ScheduleAutoPaused, Cause: workflow, Schedule: schedule, Data: map[string]string{"note": note}}
	_, err = s.pause(ctx, policy.Name{Tenant: tenant, Workflow: workflow, Key: key}, PauseParams{Note: &note}, Changer{By: "carillon"}, &happened)
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return nil
	}
	return err
}
