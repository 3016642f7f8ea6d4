package carillontest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// A year of 1,000 daily schedules in 4 zones, with a handler for each tick.
func BenchmarkAdvanceAYear(b *testing.B) {
	zones := []string{"America/New_York", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"}
	for b.Loop() {
		server := carillontest.Start(b)
		client, ticks := server.Client(), 0
		server.Handle("daily", func(context.Context, carillon.Tick[json.RawMessage]) error { ticks++; return nil })
		for i := range 1000 {
			_, err := client.Schedules.Put(b.Context(), "daily", fmt.Sprint("user_", i), carillon.Params{
				Spec: carillon.Spec{Timezone: zones[i%4], Cron: []string{fmt.Sprintf("%d %d * * *", i%60, i%24)}},
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		server.Advance("365d")
		if ticks < 364_000 || ticks > 366_000 {
			b.Fatalf("got %d ticks", ticks)
		}
	}
}
