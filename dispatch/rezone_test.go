package dispatch_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// Schedules that were timed by tzdata 2025b are retimed by the one in force, where it differs, and by it alone.
func TestANewerTZDataRetimesWhatItChanges(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	archive, err := os.ReadFile("../calendar/testdata/zones-2025b.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open("../calendar/testdata/zones-2025b.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	old, err := calendar.ReadZones(file)
	if err != nil {
		t.Fatal(err)
	}
	h.exec(`INSERT INTO tzdata (version, archive) VALUES ('2025b', $1)`, archive)
	if err := schedules.AdoptZones(t.Context(), h.pool, calendar.EmbeddedArchive()); err != nil {
		t.Fatal(err)
	}
	zones := []string{"America/Vancouver", "America/Edmonton", "America/Winnipeg", "Africa/Casablanca", "America/New_York", "Europe/Berlin", "UTC"}
	specs := map[string]calendar.Spec{}
	for _, zone := range zones {
		specs[zone] = calendar.Spec{Cron: calendar.StringList{"0 8 * * *"}, Timezone: zone}
		h.put("w", zone, schedules.Params{Spec: specs[zone]})
	}
	before := map[string]time.Time{}
	for zone, spec := range specs {
		by := old
		if !old.Has(zone) { // the archive holds what differs
			by = nil
		}
		timing, err := calendar.Compile(spec, calendar.Context{Zones: by})
		if err != nil {
			t.Fatal(err)
		}
		tick, _ := timing.Next(time.Now())
		before[zone] = tick.At
		h.exec(`
			UPDATE cohort c
			SET tzdata = '2025b', next_at = $1, due_at = $1
			FROM schedule s
			WHERE s.cohort_id = c.id AND s.key = $2`, tick.At, zone)
	}
	listens, secret := h.listener(tenants.TZDataRetimed)
	h.exec(`UPDATE tzdata SET added_at = added_at - interval '1 hour'`)
	h.start(h.dispatch)
	until(t, "it is retimed", func() bool {
		return h.number(`SELECT count(*) FROM operation WHERE kind = 'tzdata' AND state = 'succeeded'`) > 0 &&
			h.number(`SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`) == 0
	})
	var result struct {
		Zones map[string]schedules.Rezoned
	}
	var text []byte
	if err := h.pool.QueryRow(t.Context(), `SELECT result FROM operation WHERE kind = 'tzdata' ORDER BY id LIMIT 1`).Scan(&text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &result); err != nil {
		t.Fatal(err)
	}
	want := map[string]schedules.Rezoned{}
	for zone, spec := range specs {
		timing, err := calendar.Compile(spec, calendar.Context{})
		if err != nil {
			t.Fatal(err)
		}
		tick, _ := timing.Next(time.Now())
		version := "2025b"
		if zone != "America/New_York" && zone != "Europe/Berlin" && zone != "UTC" {
			version = calendar.InForce().Version()
			want[zone] = schedules.Rezoned{Schedules: 1}
			if !tick.At.Equal(before[zone]) {
				want[zone] = schedules.Rezoned{Schedules: 1, Moved: 1}
			}
		}
		s, err := h.schedules.Get(t.Context(), h.tenant, "w", zone)
		if err != nil {
			t.Fatal(err)
		}
		if s.NextAt == nil || !s.NextAt.Equal(tick.At) || s.TZData != version {
			t.Errorf("%s: next is %v by %s, want %s by %s", zone, s.NextAt, s.TZData, tick.At, version)
		}
		if n := h.number(`SELECT count(*) FROM cohort c JOIN schedule s ON s.cohort_id = c.id WHERE s.key = $1 AND c.next_at = $2 AND c.due_at = $2`, zone, tick.At); n != 1 {
			t.Errorf("%s: its cohort does not fire at %s", zone, tick.At)
		}
	}
	if diff := cmp.Diff(want, result.Zones); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
	until(t, "the tenant is told", func() bool { return len(listens.requests()) > 0 })
	told := h.told(listens, secret)[0]
	if err := json.Unmarshal(told.Data, &result); err != nil || told.Cause != calendar.InForce().Version() {
		t.Errorf("got %+v, %v", told, err)
	}
	if diff := cmp.Diff(want, result.Zones); diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
}
