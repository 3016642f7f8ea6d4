// Package comingfrom has the calls of docs/coming-from.md, so that the compiler checks them. Nothing calls its functions: the tests of package
// servertest do the same against a server.
package comingfrom

import (
	"context"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// Report is the payload of the examples.
type Report struct {
	Region string `json:"region"`
}

// Declared has the calls that stage schedules.
func Declared(ctx context.Context, client *carillon.Client, app *carillon.App, report Report) error {
	app.Declare("sync", "hourly", carillon.Cron("0 * * * *"))
	app.Declare("sync", "often", carillon.Every(5*time.Minute).FirstNow())
	app.Declare("sync", "us", carillon.Cron("0 0 * * *"), carillon.Payload(report))
	app.Declare("sync", "spread", carillon.Cron("0 0 * * *").WithJitter(5*time.Minute))
	app.Declare("report", carillon.Global, carillon.Cron("0 9 * * *"), carillon.Policy{Overlap: "buffer_one"})
	app.Declare("poll", carillon.Global, carillon.Every(5*time.Minute).FromEnd())
	app.Declare("pay", carillon.Global, carillon.Calendar(carillon.CalendarFields{DayOfMonth: "1,15", Hour: "9"}))
	app.Declare("daily_cleanup", carillon.Global, carillon.Cron("0 3 * * *"))
	app.Declare("morning_report", carillon.Global, carillon.Cron("0 8 * * 1-5").In("America/New_York"))
	app.Declare("daily_report", carillon.Global, carillon.Cron("0 9 * * *"), carillon.Delivery{Queue: "reports", Timeout: "5m", Retention: carillon.Retention{Succeeded: "1d", Failed: "7d"}}, carillon.Labels{"source": "scheduler"})
	if _, err := app.Sync(ctx, carillon.PauseUnlisted); err != nil {
		return err
	}
	if _, err := app.Sync(ctx, carillon.DeleteUnlisted, carillon.SyncOptions{DryRun: true}); err != nil {
		return err
	}
	return app.Run(ctx)
}

// Imperative has the calls that change single schedules.
func Imperative(ctx context.Context, client *carillon.Client, at, from, to time.Time) error {
	var err error
	keep := func(_ any, e error) { err = e }
	keep(client.Schedules.Put(ctx, "reminder", "user_1", carillon.Params{Spec: carillon.Cron("0 8 * * *").In("Europe/Paris")}))
	keep(client.Schedules.Put(ctx, "report", "once", carillon.Params{Spec: carillon.At(at)}))
	keep(client.Schedules.Put(ctx, "report", "soon", carillon.Params{Spec: carillon.In(time.Hour)}))
	keep(client.Schedules.Pause(ctx, "sync", "hourly", carillon.PauseParams{}))
	keep(client.Schedules.Resume(ctx, "sync", "hourly", carillon.ResumeParams{}))
	keep(client.Schedules.Trigger(ctx, "report", carillon.Global, carillon.TriggerParams{}))
	keep(client.Schedules.Get(ctx, "report", carillon.Global))
	keep(client.Schedules.Patch(ctx, "report", carillon.Global, carillon.PatchParams{Merge: map[string]any{"spec": carillon.Cron("0 7 * * *")}}))
	keep(client.Schedules.Backfill(ctx, "report", carillon.Global, carillon.BackfillParams{From: from, To: to}))
	keep(client.Schedules.Upcoming(ctx, "report", carillon.Global, carillon.UpcomingParams{Count: 10}))
	keep(client.Workflows.Put(ctx, "report", carillon.WorkflowParams{Endpoint: "mailer"}))
	for s := range client.Schedules.List(ctx, carillon.Filter{Status: "paused"}) {
		_ = s.Stats
	}
	if err != nil {
		return err
	}
	return client.Schedules.Delete(ctx, "sync", "hourly", carillon.DeleteParams{})
}

// Handled has the calls of a handler.
func Handled(app *carillon.App, render func(Report, *time.Time, time.Time) error) {
	carillon.Handle(app, "report", func(ctx context.Context, t carillon.Tick[Report]) error {
		return render(t.Payload, t.LastTimestamp, t.Timestamp)
	})
}
