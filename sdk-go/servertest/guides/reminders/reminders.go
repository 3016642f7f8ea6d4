// Package reminders is the code of the guide "Per-user reminders in 15 minutes".
package reminders

import (
	"context"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// workflow is the work that each reminder runs.
const workflow = "reminder"

// Reminder is what a tick carries to the handler.
type Reminder struct {
	Text string `json:"text"`
}

// Reminders stores the reminders of users and sends them.
type Reminders struct {
	Client *carillon.Client
	Send   func(ctx context.Context, user, text string, local time.Time) error
}

// Set stores the reminder of a user at the times of a cron expression, in the user's own zone. A second call changes it.
func (r Reminders) Set(ctx context.Context, user, zone, cron, text string) error {
	if err := r.Move(ctx, user, zone); err != nil {
		return err
	}
	_, err := r.Client.Schedules.Put(ctx, workflow, user, carillon.Params{
		Spec:    carillon.Cron(cron).In(carillon.SubjectZone),
		Policy:  carillon.Policy{MaxLateness: "30m"}, // later than that, a reminder is of no use
		Payload: Reminder{Text: text},
	})
	return err
}

// Move changes the zone of a user: all schedules of the user follow, from the next tick on.
func (r Reminders) Move(ctx context.Context, user, zone string) error {
	_, err := r.Client.Subjects.Put(ctx, user, carillon.SubjectParams{Timezone: zone})
	return err
}

// Snooze sends the reminder once more, after a while. The schedule does not change.
func (r Reminders) Snooze(ctx context.Context, user, wait string) error {
	_, err := r.Client.Schedules.Trigger(ctx, workflow, user, carillon.TriggerParams{In: wait})
	return err
}

// Stop deletes the reminder of a user.
func (r Reminders) Stop(ctx context.Context, user string) error {
	return r.Client.Schedules.Delete(ctx, workflow, user, carillon.DeleteParams{})
}

// Run sends due reminders until ctx ends. Start it in as many processes as you like.
func (r Reminders) Run(ctx context.Context) error {
	app := carillon.NewApp(r.Client, carillon.AppConfig{Name: "reminders"})
	carillon.Handle(app, workflow, func(ctx context.Context, t carillon.Tick[Reminder]) error {
		return r.Send(ctx, t.Subject, t.Payload.Text, t.LocalTime)
	})
	return app.Run(ctx)
}

// Why says in words what became of the reminder of a user at a wall time of the user's zone, such as "2026-03-29T02:30".
func (r Reminders) Why(ctx context.Context, user, local string) (string, error) {
	e, err := r.Client.Schedules.ExplainLocal(ctx, workflow, user, local)
	return e.Detail, err
}
