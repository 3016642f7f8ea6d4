package schedules_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
)

func (h *home) putKey(key string, p subjects.KeyParams) subjects.Key {
	h.t.Helper()
	k, _, _, err := h.subjects.PutKey(h.t.Context(), h.acme, key, p, "ann", version.Precondition{})
	if err != nil {
		h.t.Fatalf("put key %q: %v", key, err)
	}
	return k
}

func following(expressions ...string) schedules.Params {
	return spec(calendar.Spec{Timezone: "@key", Cron: calendar.StringList(expressions)})
}

// next is the first time of a cron in a zone after now.
func (h *home) next(zone, cron string) time.Time {
	h.t.Helper()
	t, err := calendar.Compile(calendar.Spec{Timezone: zone, Cron: calendar.StringList{cron}}, calendar.Context{})
	if err != nil {
		h.t.Fatal(err)
	}
	tick, _ := t.Next(time.Now())
	return tick.At
}

func TestAKeysZoneRetimesItsSchedules(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.putKey("k", subjects.KeyParams{Timezone: "Europe/Berlin"})
	h.putKey("j", subjects.KeyParams{Timezone: "Asia/Tokyo"})
	made := h.put("k", following("0 8 * * *"))
	other, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w2", Key: "k"}, following("30 9 * * *"), "ann", version.Precondition{})
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w3", Key: "k"}, spec(cron("0 8 * * *")), "ann", version.Precondition{})
	if err != nil {
		t.Fatal(err)
	}
	h.put("j", following("0 8 * * *"))
	paused := h.put("j2", spec(cron("0 8 * * *")))
	if want := h.next("Europe/Berlin", "0 8 * * *"); !made.NextAt.Equal(want) {
		t.Errorf("got %s, want %s", made.NextAt, want)
	}
	k := h.putKey("k", subjects.KeyParams{Timezone: "Asia/Tokyo"})
	if k.Version != 2 || k.Timezone != "Asia/Tokyo" || k.QuietHours != nil {
		t.Errorf("got %+v", k)
	}
	moved := h.get("k")
	if want := h.next("Asia/Tokyo", "0 8 * * *"); !moved.NextAt.Equal(want) || moved.Version != made.Version {
		t.Errorf("got %s, version %d, want %s", moved.NextAt, moved.Version, want)
	}
	if got, err := h.schedules.Get(t.Context(), h.acme, "w2", "k"); err != nil || !got.NextAt.Equal(h.next("Asia/Tokyo", "30 9 * * *")) || got.Version != other.Version {
		t.Errorf("got %v, %v", got.NextAt, err)
	}
	if got, err := h.schedules.Get(t.Context(), h.acme, "w3", "k"); err != nil || !cmp.Equal(got, plain) {
		t.Errorf("one that does not follow its key changed: %v %s", err, cmp.Diff(plain, got))
	}
	if got := h.get("j2"); !cmp.Equal(got, paused) {
		t.Error(cmp.Diff(paused, got))
	}
	if n := one[int](h, `SELECT count(DISTINCT c.hash)::int FROM cohort c JOIN member m ON m.cohort_id = c.id JOIN schedule s ON s.id = m.schedule_id WHERE s.workflow = 'w' AND s.by_key`); n != 1 {
		t.Errorf("keys of one zone have %d timings", n)
	}
	if n := one[int](h, `SELECT count(*)::int FROM member`); n != 5 {
		t.Errorf("%d members of 5 schedules", n)
	}
	if n := one[int](h, `SELECT count(*)::int FROM schedule_state WHERE rezoned_at IS NOT NULL`); n != 2 {
		t.Errorf("%d are rezoned", n)
	}
	if again := h.putKey("k", subjects.KeyParams{Timezone: "Asia/Tokyo"}); !cmp.Equal(again, k) {
		t.Error(cmp.Diff(k, again))
	}
}

func TestWhatIsDueIsHandedOutBeforeAKeyIsRetimed(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.putKey("k", subjects.KeyParams{Timezone: "Europe/Berlin"})
	p := following("0 * * * *")
	p.Spec.MaxTicks = new(10)
	h.put("k", p)
	h.back(2 * time.Hour)
	h.putKey("k", subjects.KeyParams{Timezone: "Asia/Kolkata"})
	handed := h.takeHanded()
	if len(handed) != 1 || handed[0].Run.At.After(time.Now()) || handed[0].Missed != 1 {
		t.Errorf("got %+v", handed)
	}
	if left := one[int](h, `SELECT ticks_left FROM schedule WHERE key = 'k'`); left != 8 {
		t.Errorf("%d of 10 are left", left)
	}
	if got := h.get("k"); got.NextAt.Minute() != 30 { // Kolkata is half an hour off
		t.Errorf("got %s", got.NextAt)
	}
}

func TestARetimedScheduleMayHaveNothingLeftOrNotCompute(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.putKey("k", subjects.KeyParams{Timezone: "Pacific/Honolulu"})
	soon := time.Now().Add(4 * time.Hour).In(calendar.InForce().Location("Pacific/Honolulu")).Format("2006-01-02T15:04:05")
	h.put("k", spec(calendar.Spec{Timezone: "@key", At: []string{soon}}))
	if _, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: "rule", Key: "k"}, spec(calendar.Spec{Timezone: "@key", RRule: "DTSTART;TZID=Pacific/Honolulu:20260105T090000\nRRULE:FREQ=DAILY"}), "ann", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	h.putKey("k", subjects.KeyParams{Timezone: "Asia/Tokyo"})
	if got := h.get("k"); got.Status != policy.Completed || got.NextAt != nil {
		t.Errorf("got %s, %v", got.Status, got.NextAt)
	}
	got, err := h.schedules.Get(t.Context(), h.acme, "rule", "k")
	if err != nil || got.Status != policy.Quarantined || got.StatusNote == nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAPausedScheduleIsTimedByItsKeyWhenItIsResumed(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.putKey("k", subjects.KeyParams{Timezone: "Europe/Berlin"})
	h.put("k", following("0 8 * * *"))
	h.pause("k", schedules.PauseParams{})
	h.putKey("k", subjects.KeyParams{Timezone: "Asia/Tokyo"})
	if got := h.resume("k", schedules.ResumeParams{}); !got.NextAt.Equal(h.next("Asia/Tokyo", "0 8 * * *")) {
		t.Errorf("got %s", got.NextAt)
	}
	until := time.Now().Add(72 * time.Hour).Truncate(time.Second)
	h.pause("k", schedules.PauseParams{Until: &until})
	h.putKey("k", subjects.KeyParams{Timezone: "Europe/Berlin"})
	if got := h.get("k"); got.Status != policy.Paused || got.NextAt == nil || got.NextAt.Before(until) || got.NextAt.Sub(until) > 25*time.Hour {
		t.Errorf("got %s, %v", got.Status, got.NextAt)
	}
}

func TestAKeyWithoutAProfileHasNoZone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	_, _, err := h.schedules.Put(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: "k"}, following("0 8 * * *"), "ann", version.Precondition{})
	if f := faulty(t, err, 422, "no_key_zone"); f.Fields[0].Pointer != "/spec/timezone" {
		t.Errorf("got %+v", f)
	}
	h.put("k", spec(cron("0 8 * * *")))
	patch, err := schedules.ReadPatch([]byte(`{"spec":{"timezone":"\u0040key"}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.schedules.Patch(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: "k"}, patch, "ann", version.Precondition{})
	faulty(t, err, 422, "no_key_zone")
	h.putKey("k", subjects.KeyParams{Timezone: "Asia/Tokyo"})
	got, err := h.schedules.Patch(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: "k"}, patch, "ann", version.Precondition{})
	if err != nil || !got.NextAt.Equal(h.next("Asia/Tokyo", "0 8 * * *")) {
		t.Errorf("got %v, %v", got.NextAt, err)
	}
	patch, err = schedules.ReadPatch([]byte(`{"spec":{"cron":["0 9 * * *"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err = h.schedules.Patch(t.Context(), policy.Name{Tenant: h.acme, Workflow: "w", Key: "k"}, patch, "ann", version.Precondition{}); err != nil || !got.NextAt.Equal(h.next("Asia/Tokyo", "0 9 * * *")) {
		t.Errorf("got %v, %v", got.NextAt, err)
	}
}

func TestBulkTimesLinesByTheirKeys(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.putKey("a", subjects.KeyParams{Timezone: "Asia/Tokyo"})
	h.putKey("b", subjects.KeyParams{Timezone: "Europe/Berlin"})
	lines := []string{
		`{"workflow":"w","key":"a","spec":{"timezone":"@key","cron":["0 8 * * *"]}}`,
		`{"workflow":"w","key":"b","spec":{"timezone":"@key","cron":["0 8 * * *"]}}`,
		`{"workflow":"w","key":"c","spec":{"timezone":"@key","cron":["0 8 * * *"]}}`,
		`{"workflow":"w","key":"d","spec":{"timezone":"Asia/Tokyo","cron":["0 8 * * *"]}}`,
	}
	send := func() (results []bulk.Result) {
		t.Helper()
		_, err := h.inBulk.Upsert(t.Context(), h.acme, "ann", io.NopCloser(strings.NewReader(strings.Join(lines, "\n"))), func(batch []bulk.Result) error {
			results = append(results, batch...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	got := send()
	for i, want := range []string{schedules.Inserted, schedules.Inserted, schedules.Failed, schedules.Inserted} {
		if got[i].Result != want {
			t.Errorf("line %d: got %+v", i+1, got[i])
		}
	}
	if f := got[2].Error; f == nil || f.Code != "no_key_zone" || f.Errors[0].Pointer != "/spec/timezone" {
		t.Errorf("got %+v", f)
	}
	if a, b, d := h.get("a"), h.get("b"), h.get("d"); !a.NextAt.Equal(*d.NextAt) || !b.NextAt.Equal(h.next("Europe/Berlin", "0 8 * * *")) {
		t.Errorf("got %s, %s, %s", a.NextAt, b.NextAt, d.NextAt)
	}
	if got := send(); got[0].Result != schedules.Unchanged || got[1].Result != schedules.Unchanged {
		t.Errorf("got %+v", got)
	}
	lines[1] = strings.Replace(lines[1], "0 8", "0 9", 1)
	lines[3] = strings.Replace(lines[3], "Asia/Tokyo", "@key", 1)
	h.putKey("d", subjects.KeyParams{Timezone: "Europe/Berlin"})
	if got := send(); got[1].Result != schedules.Updated || got[3].Result != schedules.Updated {
		t.Errorf("got %+v", got)
	}
	if b, d := h.get("b"), h.get("d"); !b.NextAt.Equal(h.next("Europe/Berlin", "0 9 * * *")) || !d.NextAt.Equal(h.next("Europe/Berlin", "0 8 * * *")) {
		t.Errorf("got %s, %s", b.NextAt, d.NextAt)
	}
}
