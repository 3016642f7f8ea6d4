package sweep_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

// waitsForRetiming stores a schedule that leaves out a calendar, edits the calendar, and returns the schedule's shard: its
// cohort is marked and no sweep has retimed it.
func waitsForRetiming(h *dispatchtest.Carillon, key string) (shard int16) {
	h.T.Helper()
	h.PutCalendar()
	h.Put("w", key, schedules.Params{Spec: dispatchtest.OffSpec("0 0 1 1 *")})
	h.PutCalendar("2030-01-02")
	if n := h.Number(`SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`); n != 1 {
		h.T.Fatalf("%d cohorts wait to be retimed, want 1", n)
	}
	return int16(h.Number(`SELECT shard FROM cohort WHERE retime_at IS NOT NULL`))
}

func TestACalendarDeletedBeforeItsEmptyCohortIsRetimedStopsNoShard(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	shard := waitsForRetiming(h, "k")
	swept := h.Neighbour(shard)
	if err := h.Schedules.Delete(t.Context(), h.Tenant, "w", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Calendars.Delete(t.Context(), h.Tenant, "off", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	h.SweepOnce(shard)
	if n := swept(); n != 1 {
		t.Errorf("%d ticks of the neighbour are swept, want 1", n)
	}
	if n := h.Number(`SELECT count(*) FROM cohort WHERE tenant_id = $1 AND retime_at IS NULL AND due_at IS NULL AND empty_at IS NOT NULL`, h.Tenant); n != 1 {
		t.Error("the cohort without members is not asleep")
	}
}

func TestACohortThatCannotBeRetimedIsQuarantinedAlone(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	shard := waitsForRetiming(h, "k")
	swept := h.Neighbour(shard)
	// The interface refuses to delete a calendar in use, so the calendar is lost by other means.
	h.Exec(`UPDATE calendar_revision SET revision = revision + 1`)
	h.Exec(`UPDATE calendar SET until = (SELECT revision FROM calendar_revision), ended_at = clock_timestamp() WHERE until IS NULL`)
	h.SweepOnce(shard)
	if n := swept(); n != 1 {
		t.Errorf("%d ticks of the neighbour are swept, want 1", n)
	}
	s, err := h.Schedules.Get(t.Context(), h.Tenant, "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	if s.Status != policy.Quarantined {
		t.Errorf("the schedule is %s, want quarantined", s.Status)
	}
	if n := h.Number(`SELECT count(*) FROM cohort WHERE tenant_id = $1 AND (due_at IS NOT NULL OR retime_at IS NOT NULL)`, h.Tenant); n != 0 {
		t.Error("the quarantined cohort is still due")
	}
	h.PutCalendar()
	h.Put("w", "k", schedules.Params{Spec: dispatchtest.OffSpec("0 0 1 1 *"), Note: new("again")})
	if n := h.Number(`SELECT count(*) FROM cohort c JOIN member m ON m.cohort_id = c.id WHERE c.tenant_id = $1 AND c.due_at = c.next_at AND c.retime_at IS NULL AND c.empty_at IS NULL`, h.Tenant); n != 1 {
		t.Error("a PUT does not arm the schedule again")
	}
}

// A failure of the database is not the cohort's fault: the sweep fails, and its cohorts stay as they are.
func TestARetimingThatTheDatabaseFailsQuarantinesNothing(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	shard := waitsForRetiming(h, "k")
	h.Exec(`ALTER TABLE calendar RENAME COLUMN dates TO hidden`)
	h.Config.Timings = cohorts.NewTimings()
	h.Dispatch = h.Process()
	if _, err := h.Dispatch.SweepOnce(t.Context(), shard); err == nil {
		t.Fatal("a sweep that cannot read calendars succeeds")
	}
	h.Exec(`ALTER TABLE calendar RENAME COLUMN hidden TO dates`)
	h.SweepOnce(shard)
	if n := h.Number(`SELECT count(*) FROM schedule WHERE status = 'active' AND cohort_id IS NOT NULL`); n != 1 {
		t.Error("the schedule is not active")
	}
	if n := h.Number(`SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`); n != 0 {
		t.Error("the cohort still waits to be retimed")
	}
}

// goneZone stores a tz database that has one zone more than the one in force.
func goneZone(h *dispatchtest.Carillon, version, zone string) {
	h.T.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(calendar.EmbeddedArchive()))
	if err != nil {
		h.T.Fatal(err)
	}
	var data []byte
	for archive := tar.NewReader(unzipped); data == nil; {
		f, err := archive.Next()
		if err != nil {
			h.T.Fatal(err)
		}
		if f.Typeflag == tar.TypeReg && f.Name[0] != '+' {
			if data, err = io.ReadAll(archive); err != nil {
				h.T.Fatal(err)
			}
		}
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for name, data := range map[string][]byte{"+VERSION": []byte(version), "Etc/UTC": data, zone: data} {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			h.T.Fatal(err)
		}
		if _, err := archive.Write(data); err != nil {
			h.T.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		h.T.Fatal(err)
	}
	h.Exec(`INSERT INTO tzdata (version, archive) VALUES ($1, $2)`, version, out.Bytes())
}

func TestACohortInAZoneThatIsGoneIsRetimedByItsOwnDatabase(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	goneZone(h, "2020a", "Gone/Zone")
	h.PutCalendar()
	h.Put("w", "k", schedules.Params{Spec: dispatchtest.OffSpec("0 0 1 1 *")})
	h.Exec(`UPDATE cohort_timing SET timing = replace(timing, '"zone":"UTC"', '"zone":"Gone/Zone"')`)
	h.Exec(`UPDATE cohort SET tzdata = '2020a'`)
	h.Config.Timings = cohorts.NewTimings()
	h.Dispatch = h.Process()
	h.PutCalendar("2030-01-02")
	h.SweepOnce(int16(h.Number(`SELECT shard FROM cohort`)))
	if n := h.Number(`SELECT count(*) FROM schedule WHERE status = 'active'`); n != 1 {
		t.Fatal("the schedule is quarantined")
	}
	if n := h.Number(`SELECT count(*) FROM cohort WHERE retime_at IS NULL AND due_at = next_at AND tzdata = '2020a' AND revision = (SELECT revision FROM calendar_revision)`); n != 1 {
		t.Error("the cohort is not retimed by the present calendar and its own zones")
	}
}

// A version of the tz database that cannot be read stops no shard: the one in force stands for it.
func TestATZDatabaseThatCannotBeReadStopsNoShard(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("w", "k", dispatchtest.Daily(0))
	shard := int16(h.Number(`SELECT shard FROM cohort`))
	swept := h.Neighbour(shard)
	h.Exec(`INSERT INTO tzdata (version, archive) VALUES ('2020a', 'broken')`)
	h.Exec(`UPDATE cohort SET tzdata = '2020a' WHERE tenant_id = $1`, h.Tenant)
	h.Backdate(h.Tenant)
	h.Config.Timings = cohorts.NewTimings()
	h.Dispatch = h.Process()
	h.SweepOnce(shard)
	if n := swept(); n != 1 {
		t.Errorf("%d ticks of the neighbour are swept, want 1", n)
	}
	if n := h.Number(`SELECT COALESCE(sum(ticks), 0) FROM chunk WHERE tenant_id = $1`, h.Tenant); n != 1 {
		t.Errorf("%d ticks are swept, want 1", n)
	}
}
