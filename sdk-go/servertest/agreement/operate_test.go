package agreement

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/carillonhq/carillon/dispatch/control"
	"github.com/carillonhq/carillon/dispatch/lease"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

var changer = schedules.Changer{By: "ann"}

func (w *world) put(of name, p carillon.Params) string {
	ctx := postgres.ForTenant(w.T.Context(), int32(w.Tenant))
	_, _, real := w.Schedules.Put(ctx, policy.Name{Tenant: w.Tenant, Workflow: of.workflow, Key: of.key}, body[schedules.Params](w, p), "ann", version.Precondition{})
	_, fake := w.client.Schedules.Put(w.T.Context(), of.workflow, of.key, p)
	return w.same("put "+of.String()+" "+text(p), real, fake)
}

func (w *world) pause(of name, until *time.Time) string {
	_, _, real := w.Schedules.Pause(w.T.Context(), w.Tenant, of.workflow, of.key, schedules.PauseParams{Until: until}, changer)
	_, fake := w.client.Schedules.Pause(w.T.Context(), of.workflow, of.key, carillon.PauseParams{Until: until})
	return w.same("pause "+of.String(), real, fake)
}

func (w *world) resume(of name, once bool) string {
	_, _, real := w.Schedules.Resume(w.T.Context(), w.Tenant, of.workflow, of.key, schedules.ResumeParams{FireOnce: once}, changer)
	_, fake := w.client.Schedules.Resume(w.T.Context(), of.workflow, of.key, carillon.ResumeParams{FireOnce: once})
	return w.same("resume "+of.String(), real, fake)
}

func (w *world) skip(of name, count int) string {
	_, _, real := w.Schedules.Skip(w.T.Context(), w.Tenant, of.workflow, of.key, schedules.SkipParams{Count: &count}, changer)
	_, fake := w.client.Schedules.Skip(w.T.Context(), of.workflow, of.key, carillon.SkipParams{Count: count})
	return w.same("skip "+of.String(), real, fake)
}

func (w *world) unskip(of name) string {
	_, _, real := w.Schedules.Unskip(w.T.Context(), w.Tenant, of.workflow, of.key, changer)
	_, fake := w.client.Schedules.Unskip(w.T.Context(), of.workflow, of.key)
	return w.same("unskip "+of.String(), real, fake)
}

// reschedule moves the next tick of a schedule, if it has one.
func (w *world) reschedule(of name, by time.Duration) string {
	next := w.get(of).NextAt
	if next == nil {
		return ""
	}
	at, to := *next, next.Add(by)
	_, _, real := w.Schedules.Reschedule(w.T.Context(), w.Tenant, of.workflow, of.key, schedules.RescheduleParams{At: at, To: to}, changer)
	_, fake := w.client.Schedules.Reschedule(w.T.Context(), of.workflow, of.key, carillon.RescheduleParams{At: at, To: to})
	return w.same("reschedule "+of.String()+" from "+at.Format(time.RFC3339)+" to "+to.Format(time.RFC3339), real, fake)
}

func (w *world) get(of name) carillon.Schedule {
	s, err := w.client.Schedules.Get(w.T.Context(), of.workflow, of.key)
	if err != nil {
		w.T.Fatal(err)
	}
	return s
}

func (w *world) spec(s *story) carillon.Spec { return w.get(s.name).Spec }

func (w *world) trigger(of name, in string) string {
	ctx := postgres.ForTenant(w.T.Context(), int32(w.Tenant))
	_, _, real := w.Dispatch.Control.Trigger(ctx, w.Tenant, of.workflow, of.key, control.TriggerParams{In: in}, once.Request{})
	_, fake := w.client.Schedules.Trigger(w.T.Context(), of.workflow, of.key, carillon.TriggerParams{In: in})
	return w.same("trigger "+of.String()+" "+in, real, fake)
}

func (w *world) subject(of string, p carillon.SubjectParams) string {
	ctx := postgres.ForTenant(w.T.Context(), int32(w.Tenant))
	_, _, _, real := w.Subjects.PutSubject(ctx, w.Tenant, of, body[subjects.SubjectParams](w, p), "ann", version.Precondition{})
	_, fake := w.client.Subjects.Put(w.T.Context(), of, p)
	return w.same("subject "+of+" "+text(p), real, fake)
}

func (w *world) calendar(of string, dates []string) string {
	ctx := postgres.ForTenant(w.T.Context(), int32(w.Tenant))
	_, _, real := w.Calendars.Put(ctx, w.Tenant, of, calendars.Params{Dates: dates}, "ann")
	_, fake := w.client.Calendars.Put(w.T.Context(), of, carillon.CalendarParams{Dates: dates})
	return w.same("calendar "+of, real, fake)
}

// finish ends all ticks of a workflow that are ready: some fail for good.
func (w *world) finish(workflow string) {
	w.finishReal(workflow)
	var leased []carillon.Tick[json.RawMessage]
	for empty := 0; empty < 2; { // a lease that finds only expired or cancelled ticks returns none, but may make others ready
		more, err := w.client.Ticks.Lease(w.T.Context(), carillon.LeaseParams{Workflows: []string{workflow}, Max: 1000, Lease: 10 * time.Minute})
		if err != nil {
			w.T.Fatal(err)
		}
		if empty++; len(more) > 0 {
			empty = 0
		}
		leased = append(leased, more...)
	}
	if len(leased) > 0 {
		w.note("finish %s: %d ticks", workflow, len(leased))
	}
	byKey := func(t carillon.Tick[json.RawMessage]) string { return t.Key }
	for _, round := range rounds(leased, byKey, func(t carillon.Tick[json.RawMessage]) time.Time { return t.Timestamp }) {
		for _, t := range round {
			err := error(nil)
			if fails(t.Key, t.Timestamp) {
				err = w.client.Ticks.Fail(w.T.Context(), t.TickID, t.LeaseToken, carillon.Permanent(errors.New("no")))
			} else {
				err = w.client.Ticks.Complete(w.T.Context(), t.TickID, t.LeaseToken, nil)
			}
			if err != nil && !errors.Is(err, carillon.CodeCancelled) {
				w.T.Fatal(err)
			}
		}
	}
}

// leasedTick is a tick that the real server leases.
type leasedTick struct {
	ID        string `json:"tick_id"`
	Token     string `json:"lease_token"`
	Key       string
	Timestamp time.Time
}

// finishReal is finish for the real server.
func (w *world) finishReal(workflow string) {
	var leased []leasedTick
	for empty := 0; empty < 2; {
		content, err := w.Dispatch.Leases.Lease(w.T.Context(), w.Tenant, lease.LeaseParams{Workflows: []string{workflow}, Max: new(1000), Worker: "w"}, nil)
		if err != nil {
			w.T.Fatal(err)
		}
		var more struct{ Ticks []leasedTick }
		if err := json.Unmarshal(content, &more); err != nil {
			w.T.Fatal(err)
		}
		if empty++; len(more.Ticks) > 0 {
			empty = 0
		}
		leased = append(leased, more.Ticks...)
		w.settle()
	}
	byKey := func(t leasedTick) string { return t.Key }
	for _, round := range rounds(leased, byKey, func(t leasedTick) time.Time { return t.Timestamp }) {
		var ends []lease.Finish
		for _, one := range round {
			f := lease.Finish{TickID: one.ID, LeaseToken: one.Token, Outcome: "complete"}
			if fails(one.Key, one.Timestamp) {
				f.Outcome, f.Error, f.Retry = "fail", "no", new(false)
			}
			ends = append(ends, f)
		}
		if _, err := w.Dispatch.Leases.Finish(w.T.Context(), w.Tenant, ends); err != nil {
			w.T.Fatal(err)
		}
		w.settle()
	}
}
