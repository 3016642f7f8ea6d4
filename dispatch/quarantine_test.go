package dispatch_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
)

// neighbour stores a due schedule of another tenant in a shard, and returns a function that counts its swept ticks.
func (h *house) neighbour(shard int16) (swept func() int) {
	h.t.Helper()
	own := h.tenant
	defer func() { h.tenant = own }()
	h.tenant = h.quota("neighbour", 1000)
	other := h.tenant
	h.exec(`UPDATE tenant SET spread = 64 WHERE id = $1`, other)
	for i := 0; h.number(`SELECT count(*) FROM cohort WHERE shard = $1 AND tenant_id = $2`, shard, other) == 0; i++ {
		h.put("small", fmt.Sprint(i), daily(0))
	}
	h.backdate(other)
	return func() int {
		return h.number(`SELECT COALESCE(sum(ticks), 0) FROM chunk WHERE tenant_id = $1 AND shard = $2`, other, shard)
	}
}

func (h *house) sweepOnce(shard int16) {
	h.t.Helper()
	if _, err := h.dispatch.SweepOnce(h.t.Context(), shard); err != nil {
		h.t.Fatal(err)
	}
}

// waitsForRetiming stores a schedule that leaves out a calendar, edits the calendar, and returns the schedule's shard: its
// cohort is marked and no sweep has retimed it.
func (h *house) waitsForRetiming(key string) (shard int16) {
	h.t.Helper()
	h.putCalendar()
	h.put("w", key, schedules.Params{Spec: offSpec("0 0 1 1 *")})
	h.putCalendar("2030-01-02")
	if n := h.number(`SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`); n != 1 {
		h.t.Fatalf("%d cohorts wait to be retimed, want 1", n)
	}
	return int16(h.number(`SELECT shard FROM cohort WHERE retime_at IS NOT NULL`))
}

func TestACalendarDeletedBeforeItsEmptyCohortIsRetimedStopsNoShard(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	shard := h.waitsForRetiming("k")
	swept := h.neighbour(shard)
	if err := h.schedules.Delete(t.Context(), h.tenant, "w", "k", schedules.Changer{By: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := h.calendars.Delete(t.Context(), h.tenant, "off", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	h.sweepOnce(shard)
	if n := swept(); n != 1 {
		t.Errorf("%d ticks of the neighbour are swept, want 1", n)
	}
	if n := h.number(`SELECT count(*) FROM cohort WHERE tenant_id = $1 AND retime_at IS NULL AND due_at IS NULL AND empty_at IS NOT NULL`, h.tenant); n != 1 {
		t.Error("the cohort without members is not asleep")
	}
}

func TestACohortThatCannotBeRetimedIsQuarantinedAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	shard := h.waitsForRetiming("k")
	swept := h.neighbour(shard)
	// The interface refuses to delete a calendar in use, so the calendar is lost by other means.
	h.exec(`UPDATE calendar_revision SET revision = revision + 1`)
	h.exec(`UPDATE calendar SET until = (SELECT revision FROM calendar_revision), ended_at = clock_timestamp() WHERE until IS NULL`)
	h.sweepOnce(shard)
	if n := swept(); n != 1 {
		t.Errorf("%d ticks of the neighbour are swept, want 1", n)
	}
	s, err := h.schedules.Get(t.Context(), h.tenant, "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	if s.Status != schedules.Quarantined {
		t.Errorf("the schedule is %s, want quarantined", s.Status)
	}
	if n := h.number(`SELECT count(*) FROM cohort WHERE tenant_id = $1 AND (due_at IS NOT NULL OR retime_at IS NOT NULL)`, h.tenant); n != 0 {
		t.Error("the quarantined cohort is still due")
	}
	h.putCalendar()
	h.put("w", "k", schedules.Params{Spec: offSpec("0 0 1 1 *"), Note: new("again")})
	if n := h.number(`SELECT count(*) FROM cohort c JOIN member m ON m.cohort_id = c.id WHERE c.tenant_id = $1 AND c.due_at = c.next_at AND c.retime_at IS NULL AND c.empty_at IS NULL`, h.tenant); n != 1 {
		t.Error("a PUT does not arm the schedule again")
	}
}

// A failure of the database is not the cohort's fault: the sweep fails, and its cohorts stay as they are.
func TestARetimingThatTheDatabaseFailsQuarantinesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	shard := h.waitsForRetiming("k")
	h.exec(`ALTER TABLE calendar RENAME COLUMN dates TO hidden`)
	h.config.Timings = cohorts.NewTimings()
	h.dispatch = h.process()
	if _, err := h.dispatch.SweepOnce(t.Context(), shard); err == nil {
		t.Fatal("a sweep that cannot read calendars succeeds")
	}
	h.exec(`ALTER TABLE calendar RENAME COLUMN hidden TO dates`)
	h.sweepOnce(shard)
	if n := h.number(`SELECT count(*) FROM schedule WHERE status = 'active' AND cohort_id IS NOT NULL`); n != 1 {
		t.Error("the schedule is not active")
	}
	if n := h.number(`SELECT count(*) FROM cohort WHERE retime_at IS NOT NULL`); n != 0 {
		t.Error("the cohort still waits to be retimed")
	}
}

// goneZone stores a tz database that has one zone more than the one in force.
func (h *house) goneZone(version, zone string) {
	h.t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(calendar.EmbeddedArchive()))
	if err != nil {
		h.t.Fatal(err)
	}
	var data []byte
	for archive := tar.NewReader(unzipped); data == nil; {
		f, err := archive.Next()
		if err != nil {
			h.t.Fatal(err)
		}
		if f.Typeflag == tar.TypeReg && f.Name[0] != '+' {
			if data, err = io.ReadAll(archive); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for name, data := range map[string][]byte{"+VERSION": []byte(version), "Etc/UTC": data, zone: data} {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
			h.t.Fatal(err)
		}
		if _, err := archive.Write(data); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		h.t.Fatal(err)
	}
	h.exec(`INSERT INTO tzdata (version, archive) VALUES ($1, $2)`, version, out.Bytes())
}

func TestACohortInAZoneThatIsGoneIsRetimedByItsOwnDatabase(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.goneZone("2020a", "Gone/Zone")
	h.putCalendar()
	h.put("w", "k", schedules.Params{Spec: offSpec("0 0 1 1 *")})
	h.exec(`UPDATE cohort_timing SET timing = replace(timing, '"zone":"UTC"', '"zone":"Gone/Zone"')`)
	h.exec(`UPDATE cohort SET tzdata = '2020a'`)
	h.config.Timings = cohorts.NewTimings()
	h.dispatch = h.process()
	h.putCalendar("2030-01-02")
	h.sweepOnce(int16(h.number(`SELECT shard FROM cohort`)))
	if n := h.number(`SELECT count(*) FROM schedule WHERE status = 'active'`); n != 1 {
		t.Fatal("the schedule is quarantined")
	}
	if n := h.number(`SELECT count(*) FROM cohort WHERE retime_at IS NULL AND due_at = next_at AND tzdata = '2020a' AND revision = (SELECT revision FROM calendar_revision)`); n != 1 {
		t.Error("the cohort is not retimed by the present calendar and its own zones")
	}
}

// A version of the tz database that cannot be read stops no shard: the one in force stands for it.
func TestATZDatabaseThatCannotBeReadStopsNoShard(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.put("w", "k", daily(0))
	shard := int16(h.number(`SELECT shard FROM cohort`))
	swept := h.neighbour(shard)
	h.exec(`INSERT INTO tzdata (version, archive) VALUES ('2020a', 'broken')`)
	h.exec(`UPDATE cohort SET tzdata = '2020a' WHERE tenant_id = $1`, h.tenant)
	h.backdate(h.tenant)
	h.config.Timings = cohorts.NewTimings()
	h.dispatch = h.process()
	h.sweepOnce(shard)
	if n := swept(); n != 1 {
		t.Errorf("%d ticks of the neighbour are swept, want 1", n)
	}
	if n := h.number(`SELECT COALESCE(sum(ticks), 0) FROM chunk WHERE tenant_id = $1`, h.tenant); n != 1 {
		t.Errorf("%d ticks are swept, want 1", n)
	}
}
