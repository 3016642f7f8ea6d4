package subjects_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

func TestAKeysZoneRetimesItsSchedules(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Europe/Berlin"})
	h.PutSubject("j", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	made := h.Put("k", schedulestest.FollowingSubject("0 8 * * *"))
	other, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w2", Key: "k"}, schedulestest.FollowingSubject("30 9 * * *"), "ann", version.Precondition{})
	if err != nil {
		t.Fatal(err)
	}
	plain, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w3", Key: "k"}, schedulestest.ByCron("0 8 * * *"), "ann", version.Precondition{})
	if err != nil {
		t.Fatal(err)
	}
	h.Put("j", schedulestest.FollowingSubject("0 8 * * *"))
	paused := h.Put("j2", schedulestest.ByCron("0 8 * * *"))
	if want := h.NextOf("Europe/Berlin", "0 8 * * *"); !made.NextAt.Equal(want) {
		t.Errorf("got %s, want %s", made.NextAt, want)
	}
	k := h.PutSubject("k", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	if k.Version != 2 || k.Timezone != "Asia/Tokyo" || k.QuietHours != nil {
		t.Errorf("got %+v", k)
	}
	moved := h.Get("k")
	if want := h.NextOf("Asia/Tokyo", "0 8 * * *"); !moved.NextAt.Equal(want) || moved.Version != made.Version {
		t.Errorf("got %s, version %d, want %s", moved.NextAt, moved.Version, want)
	}
	if got, err := h.Schedules.Get(t.Context(), h.Acme, "w2", "k"); err != nil || !got.NextAt.Equal(h.NextOf("Asia/Tokyo", "30 9 * * *")) || got.Version != other.Version {
		t.Errorf("got %v, %v", got.NextAt, err)
	}
	if got, err := h.Schedules.Get(t.Context(), h.Acme, "w3", "k"); err != nil || !cmp.Equal(got, plain) {
		t.Errorf("one that does not follow its key changed: %v %s", err, cmp.Diff(plain, got))
	}
	if got := h.Get("j2"); !cmp.Equal(got, paused) {
		t.Error(cmp.Diff(paused, got))
	}
	if n := schedulestest.One[int](h, `SELECT count(DISTINCT c.hash)::int FROM cohort c JOIN member m ON m.cohort_id = c.id JOIN schedule s ON s.id = m.schedule_id WHERE s.workflow = 'w' AND s.by_subject`); n != 1 {
		t.Errorf("keys of one zone have %d timings", n)
	}
	if n := schedulestest.One[int](h, `SELECT count(*)::int FROM member`); n != 5 {
		t.Errorf("%d members of 5 schedules", n)
	}
	if n := schedulestest.One[int](h, `SELECT count(*)::int FROM schedule_state WHERE rezoned_at IS NOT NULL`); n != 2 {
		t.Errorf("%d are rezoned", n)
	}
	if again := h.PutSubject("k", subjects.SubjectParams{Timezone: "Asia/Tokyo"}); !cmp.Equal(again, k) {
		t.Error(cmp.Diff(k, again))
	}
}

func TestWhatIsDueIsHandedOutBeforeAKeyIsRetimed(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Europe/Berlin"})
	p := schedulestest.FollowingSubject(schedulestest.EachHour(30))
	p.Spec.MaxTicks = new(10)
	made := h.Put("k", p)
	h.Backdate(2 * time.Hour)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Asia/Kathmandu"})
	handed := h.TakeHanded()
	if len(handed) != 1 || handed[0].Run.At.After(time.Now()) || handed[0].Missed != 1 {
		t.Errorf("got %+v", handed)
	}
	if left := schedulestest.One[int](h, `SELECT ticks_left FROM schedule WHERE key = 'k'`); left != 8 {
		t.Errorf("%d of 10 are left", left)
	}
	if got := h.Get("k"); got.NextAt.Minute() != made.NextAt.Add(15*time.Minute).Minute() { // Kathmandu is 5 hours and 45 minutes ahead of UTC
		t.Errorf("got %s", got.NextAt)
	}
}

func TestARetimedScheduleMayHaveNothingLeftOrNotCompute(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Pacific/Honolulu"})
	soon := time.Now().Add(4 * time.Hour).In(calendar.InForce().Location("Pacific/Honolulu")).Format("2006-01-02T15:04:05")
	h.Put("k", schedulestest.Spec(calendar.Spec{Timezone: "@subject", At: []string{soon}}))
	if _, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "rule", Key: "k"}, schedulestest.Spec(calendar.Spec{Timezone: "@subject", RRule: "DTSTART;TZID=Pacific/Honolulu:20260105T090000\nRRULE:FREQ=DAILY"}), "ann", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	if got := h.Get("k"); got.Status != policy.Completed || got.NextAt != nil {
		t.Errorf("got %s, %v", got.Status, got.NextAt)
	}
	got, err := h.Schedules.Get(t.Context(), h.Acme, "rule", "k")
	if err != nil || got.Status != policy.Quarantined || got.StatusNote == nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAPausedScheduleIsTimedByItsKeyWhenItIsResumed(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Europe/Berlin"})
	h.Put("k", schedulestest.FollowingSubject("0 8 * * *"))
	h.Pause("k", schedules.PauseParams{})
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	if got := h.Resume("k", schedules.ResumeParams{}); !got.NextAt.Equal(h.NextOf("Asia/Tokyo", "0 8 * * *")) {
		t.Errorf("got %s", got.NextAt)
	}
	until := time.Now().Add(72 * time.Hour).Truncate(time.Second)
	h.Pause("k", schedules.PauseParams{Until: &until})
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Europe/Berlin"})
	if got := h.Get("k"); got.Status != policy.Paused || got.NextAt == nil || got.NextAt.Before(until) || got.NextAt.Sub(until) > 25*time.Hour {
		t.Errorf("got %s, %v", got.Status, got.NextAt)
	}
}

func TestAKeyWithoutAProfileHasNoZone(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "k"}, schedulestest.FollowingSubject("0 8 * * *"), "ann", version.Precondition{})
	if f := schedulestest.WantFault(t, err, 422, "no_subject_zone"); f.Fields[0].Pointer != "/spec/timezone" {
		t.Errorf("got %+v", f)
	}
	h.Put("k", schedulestest.ByCron("0 8 * * *"))
	patch, err := schedules.ReadPatch([]byte(`{"spec":{"timezone":"\u0040subject"}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Schedules.Patch(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "k"}, patch, "ann", version.Precondition{})
	schedulestest.WantFault(t, err, 422, "no_subject_zone")
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Asia/Tokyo"})
	got, err := h.Schedules.Patch(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "k"}, patch, "ann", version.Precondition{})
	if err != nil || !got.NextAt.Equal(h.NextOf("Asia/Tokyo", "0 8 * * *")) {
		t.Errorf("got %v, %v", got.NextAt, err)
	}
	patch, err = schedules.ReadPatch([]byte(`{"spec":{"cron":["0 9 * * *"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err = h.Schedules.Patch(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "k"}, patch, "ann", version.Precondition{}); err != nil || !got.NextAt.Equal(h.NextOf("Asia/Tokyo", "0 9 * * *")) {
		t.Errorf("got %v, %v", got.NextAt, err)
	}
}

// A schedule may begin to follow its key while the profile of the key changes. In any order of the two, its timing has the last profile.
// A schedule never follows the profile of a key that was erased or renamed.
func TestAScheduleNeverMissesAChangeOfItsKey(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	zones := []string{"Asia/Tokyo", "Europe/Berlin", "America/New_York", "Etc/UTC"}
	keys := []string{"a", "b", "c"}
	for _, key := range keys {
		h.PutSubject(key, subjects.SubjectParams{Timezone: zones[0]})
	}
	var wg sync.WaitGroup
	fail := func(err error, codes ...string) {
		for _, code := range codes {
			if err == nil || strings.Contains(fmt.Sprintf("%+v", err), code) {
				return
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	for n := range 12 {
		workflow, key := fmt.Sprintf("w%d", n), keys[n%len(keys)]
		wg.Go(func() {
			for i := range 6 {
				p := schedulestest.FollowingSubject(fmt.Sprintf("%d 8 * * *", i))
				if i%3 == 2 {
					p.Spec.Timezone = "Asia/Kathmandu"
				}
				_, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: workflow, Key: key}, p, "ann", version.Precondition{})
				fail(err, "no profile")
				lines := fmt.Sprintf(`{"workflow":"bulk%d","key":%q,"spec":{"timezone":"@subject","cron":["%d 9 * * *"]}}`, n, key, i)
				_, err = h.InBulk.Upsert(t.Context(), h.Acme, "ann", io.NopCloser(strings.NewReader(lines)), func([]bulk.Result) error { return nil })
				fail(err)
			}
		})
	}
	for n, key := range keys {
		wg.Go(func() {
			for i := range 12 {
				_, _, _, err := h.Subjects.PutSubject(t.Context(), h.Acme, key, subjects.SubjectParams{Timezone: zones[(i+n)%len(zones)]}, "ann", version.Precondition{})
				fail(err)
			}
		})
	}
	wg.Go(func() {
		_, err := h.Subjects.Erase(t.Context(), h.Acme, keys[0], "ann", version.Precondition{})
		fail(err)
	})
	wg.Go(func() {
		_, _, err := h.Subjects.Rename(t.Context(), h.Acme, keys[1], subjects.RenameParams{To: "renamed"}, once.Request{})
		fail(err)
	})
	wg.Wait()
	rows, err := h.Pool.Query(t.Context(), `
		SELECT s.workflow || '/' || s.key, COALESCE(kp.timezone, ''), COALESCE(c.timing, '')
		FROM schedule s
		LEFT JOIN subject_profile kp ON kp.tenant_id = s.tenant_id AND kp.subject = s.key
		LEFT JOIN cohort_timing c ON c.tenant_id = s.tenant_id AND c.shard = s.shard AND c.id = s.cohort_id
		WHERE s.by_subject`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var name, zone, timing string
		if err := rows.Scan(&name, &zone, &timing); err != nil {
			t.Fatal(err)
		}
		n++
		timed, err := calendar.FromCanonical([]byte(timing), calendar.Context{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if timed.Zone() != zone {
			t.Errorf("%s is timed in %s, its key's zone is %s", name, timed.Zone(), zone)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Error("nothing follows a key")
	}
	if left := schedulestest.One[int](h, `SELECT count(*)::int FROM member m WHERE NOT EXISTS (SELECT FROM schedule s WHERE s.id = m.schedule_id AND s.cohort_id = m.cohort_id)`); left != 0 {
		t.Errorf("%d members of nobody", left)
	}
}
