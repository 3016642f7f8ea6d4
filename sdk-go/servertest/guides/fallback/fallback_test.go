package fallback

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// fired runs a spec over the days around a clock change, and returns when its ticks fired, by the clock on the wall.
func fired(t *testing.T, spec carillon.Spec, from, to string) []string {
	t.Helper()
	srv := carillontest.Start(t)
	srv.Advance(from)
	var local []string
	srv.Handle("report", func(_ context.Context, tick carillon.Tick[json.RawMessage]) error {
		local = append(local, tick.LocalTime.Format("Mon 15:04 -07"))
		return nil
	})
	_, err := srv.Client().Schedules.Put(t.Context(), "report", carillon.Global, carillon.Params{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	srv.Advance(to)
	return local
}

func TestFallBackWeekend(t *testing.T) {
	const friday, monday = "2026-10-30T12:00:00Z", "2026-11-02T12:00:00Z"
	newYork := carillon.Cron("30 1 * * *").In("America/New_York") // on Sunday the clock shows 01:30 twice
	both := newYork.WithDST(carillon.DST{Overlap: "both"})
	for _, test := range []struct {
		name string
		spec carillon.Spec
		want []string
	}{
		{"at 01:30, once by default", newYork, []string{"Sat 01:30 -04", "Sun 01:30 -04", "Mon 01:30 -05"}},
		{"at 01:30, both times", both, []string{"Sat 01:30 -04", "Sun 01:30 -04", "Sun 01:30 -05", "Mon 01:30 -05"}},
		{"at eight, whatever UTC says", carillon.Cron("0 8 * * *").In("America/New_York"), []string{"Sat 08:00 -04", "Sun 08:00 -05"}},
	} {
		if got := fired(t, test.spec, friday, monday); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestSpringForwardWeekend(t *testing.T) {
	spec := carillon.Cron("30 2 * * *").In("America/New_York") // on Sunday there is no 02:30
	got := fired(t, spec, "2026-03-07T12:00:00Z", "2026-03-09T12:00:00Z")
	if want := []string{"Sun 03:30 -04", "Mon 02:30 -04"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
