package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	declaredSchedules = 100_000
	secondSyncWithin  = 10 // seconds
)

// declare syncs the declared schedules of one program: all that are new, the same again, half of them, and all again. Beside them are as many
// schedules of another program, which must not change.
func declare(ctx context.Context, o options, p *progress) (*report, error) {
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error {
		d.n = o.scaled(declaredSchedules)
		if _, err := d.program("other", d.n).Sync(ctx, carillon.PauseUnlisted); err != nil {
			return err
		}
		for _, step := range []struct {
			name string
			n    int
			want carillon.SyncSummary
		}{
			{"first", d.n, carillon.SyncSummary{Inserted: d.n}},
			{"second", d.n, carillon.SyncSummary{Unchanged: d.n}},
			{"half", d.n / 2, carillon.SyncSummary{Unchanged: d.n / 2, Reconciled: d.n - d.n/2}},
			{"rollback", d.n, carillon.SyncSummary{Unchanged: d.n / 2, Updated: d.n - d.n/2, Resumed: d.n - d.n/2}},
		} {
			app := d.program("measured", step.n)
			began := time.Now()
			report, err := app.Sync(ctx, carillon.PauseUnlisted)
			took := time.Since(began).Seconds()
			if err != nil {
				return fmt.Errorf("%s sync: %w", step.name, err)
			}
			d.say("%s sync: %+v in %.1f s", step.name, report.SyncSummary, took)
			if report.SyncSummary != step.want {
				return fmt.Errorf("the %s sync came to %+v, not %+v", step.name, report.SyncSummary, step.want)
			}
			if step.name == "second" && o.scale >= 1 {
				d.report.atMost("second_seconds", took, secondSyncWithin)
				continue
			}
			d.report.figure(step.name+"_seconds", took)
		}
		var paused, touched int
		err := d.db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE status <> 'active'), count(*) FILTER (WHERE workflow = 'other' AND version > 1) FROM schedule`).Scan(&paused, &touched)
		d.report.figure("schedules", float64(d.n))
		d.report.atMost("left_paused", float64(paused), 0)
		d.report.atMost("changed_of_the_other_program", float64(touched), 0)
		return err
	})
}

// program returns an app that declares n schedules of the workflow of its name.
func (d *deliveries) program(name string, n int) *carillon.App {
	app := carillon.NewApp(d.client, carillon.AppConfig{Name: name, Version: "v1", Worker: carillon.WorkerConfig{Log: slog.New(slog.DiscardHandler)}})
	for i := range n {
		spec := carillon.Spec{Timezone: "America/New_York", Cron: carillon.Strings{fmt.Sprintf("%d %d * * *", i%60, i/60%24)}}
		app.Declare(name, fmt.Sprintf("user_%07d", i), spec, carillon.Payload(payloadFor(i, 1)), carillon.Labels{"plan": "pro"})
	}
	return app
}
