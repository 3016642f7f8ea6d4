package carillontest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// On 1 November 2026 the clocks of New York show the hour from 1:00 to 2:00 twice. A daily reminder at 1:30 comes once, the first time. A
// job of every 30 minutes comes both times.
func ExampleServer_Advance_fallBackWeekend() {
	srv := carillontest.New() // in a test: carillontest.Start(t)
	client, ctx := srv.Client(), context.Background()
	show := func(_ context.Context, t carillon.Tick[json.RawMessage]) error {
		fmt.Println(t.Workflow, t.LocalTime.Format("Mon 15:04 -0700"), t.DST)
		return nil
	}
	srv.Handle("reminder", show)
	srv.Handle("job", show)

	srv.Advance("2026-11-01T05:00:00Z") // 1:00 in New York, for the first time
	for workflow, cron := range map[string]string{"reminder": "30 1 * * *", "job": "*/30 1 * * *"} {
		_, err := client.Schedules.Put(ctx, workflow, "ada", carillon.Params{Spec: carillon.Spec{Timezone: "America/New_York", Cron: []string{cron}, DST: dstOf(workflow)}})
		if err != nil {
			fmt.Println(err)
		}
	}
	srv.Advance("2026-11-01T12:00:00Z")
	// Unordered output:
	// reminder Sun 01:30 -0400 overlap_first
	// job Sun 01:30 -0400 overlap_first
	// job Sun 01:00 -0500 overlap_second
	// job Sun 01:30 -0500 overlap_second
}

func dstOf(workflow string) carillon.DST {
	if workflow == "job" {
		return carillon.DST{Overlap: "both"}
	}
	return carillon.DST{}
}

// The server is away for three days. By the policy last, one tick stands for the days that were missed.
func ExampleServer_Outage() {
	srv := carillontest.New()
	client, ctx := srv.Client(), context.Background()
	srv.Handle("digest", func(_ context.Context, t carillon.Tick[json.RawMessage]) error {
		fmt.Println(t.Timestamp.Format(time.DateOnly), t.Cause, "stands also for", t.MissedCount)
		return nil
	})
	_, err := client.Schedules.Put(ctx, "digest", "ada", carillon.Params{Spec: carillon.Spec{Cron: []string{"0 8 * * *"}}})
	if err != nil {
		fmt.Println(err)
	}
	srv.Advance("1d")
	srv.Outage("2026-01-09T08:00:30Z")
	srv.Advance("1d")
	// Output:
	// 2026-01-05 schedule stands also for 0
	// 2026-01-09 catch_up stands also for 3
	// 2026-01-10 schedule stands also for 0
}

// Each tick takes 90 minutes, and the schedule fires every hour. By the policy skip, every second tick is skipped.
func ExampleServer_Takes() {
	srv := carillontest.New()
	client, ctx := srv.Client(), context.Background()
	srv.Handle("sync", func(context.Context, carillon.Tick[json.RawMessage]) error { return nil })
	srv.Takes("sync", 90*time.Minute)
	_, err := client.Schedules.Put(ctx, "sync", "global", carillon.Params{Spec: carillon.Spec{Cron: []string{"0 * * * *"}}})
	if err != nil {
		fmt.Println(err)
	}
	srv.Advance("4h")
	for t, err := range client.Schedules.Ticks(ctx, "sync", "global", carillon.TickFilter{}) {
		fmt.Println(t.Timestamp.Format("15:04"), t.State, t.Reason, err)
	}
	// Output:
	// 04:00 skipped overlap <nil>
	// 03:00 running  <nil>
	// 02:00 skipped overlap <nil>
	// 01:00 succeeded  <nil>
}
