package sweep_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
)

func TestEarlierChunkOfAScheduleIsOpenedFirst(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	ids := h.SweptThrice("ordered")
	if err := h.Dispatch.Open(t.Context(), ids[len(ids)-1]); err != nil {
		t.Fatal(err)
	}
	if left := h.Chunks(); len(left) > 0 {
		t.Errorf("chunks %v are unopened", left)
	}
	ticks := h.History("ordered", "k")
	if len(ticks) != len(ids) {
		t.Fatalf("%d ticks of %d chunks", len(ticks), len(ids))
	}
	for i, one := range ticks[1:] {
		if one.LastTimestamp == nil || !one.LastTimestamp.Equal(ticks[i].Timestamp) || *one.Occurrence != int64(i+2) {
			t.Errorf("tick %d: got %+v after %s", i+1, one, ticks[i].Timestamp)
		}
	}
}

func TestHerdIsSweptInPartsAndEachMemberOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	const size = 20_000
	spec := calendar.Spec{Cron: calendar.StringList{"* * * * *"}}
	h.Put("herd", "first", schedules.Params{Spec: spec})
	h.Herd("herd", "first", size-1)
	h.Exec(`UPDATE member SET from_at = from_at - interval '1 minute'`)
	h.Exec(`UPDATE cohort SET next_at = next_at - interval '1 minute', due_at = due_at - interval '1 minute'`)
	shard := int16(h.Number(`SELECT shard FROM cohort`))
	more, err := h.Dispatch.SweepOnce(t.Context(), shard)
	if err != nil || !more {
		t.Fatalf("one sweep: %v, %v", more, err)
	}
	swept := h.Number(`SELECT sum(ticks) FROM chunk`)
	if swept == 0 || swept >= size {
		t.Fatalf("one sweep took %d of %d", swept, size)
	}
	// In mid-run one that was passed and one that was not change their timing, and one joins.
	passed := "herd 1"
	ahead := "herd 19999"
	weekly := calendar.Spec{Cron: calendar.StringList{"0 0 * * 0"}}
	h.Put("herd", passed, schedules.Params{Spec: weekly})
	h.Put("herd", ahead, schedules.Params{Spec: weekly})
	h.Put("herd", "joined", schedules.Params{Spec: spec})
	h.Start(h.Dispatch)
	due := h.At(`SELECT min(nominal_at) FROM chunk`)
	dispatchtest.Until(t, "all of the herd have a tick", func() bool {
		return h.Number(`SELECT count(*) FROM tick WHERE nominal_at = $1`, due) >= size
	})
	if n := h.Number(`SELECT count(DISTINCT schedule_id) FROM tick WHERE nominal_at = $1`, due); n != size {
		t.Errorf("%d schedules have a tick, want %d", n, size)
	}
	if n := h.Number(`SELECT count(*) FROM tick t JOIN schedule s ON s.id = t.schedule_id WHERE s.key = 'joined' AND t.nominal_at <= $1`, due); n != 0 {
		t.Errorf("one that joined in mid-run has %d ticks of that run", n)
	}
	if n := h.Number(`SELECT count(*) FROM tick WHERE state = 1 AND nominal_at = $1`, due); n != size {
		t.Errorf("%d ticks were handed out, want %d", n, size)
	}
}

func TestJitterSpreadsTicksOverItsTime(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Start(h.Dispatch)
	const size = 60
	at := time.Now().UTC().Add(15 * time.Second).Truncate(time.Second)
	var lines strings.Builder
	for i := range size {
		fmt.Fprintf(&lines, `{"workflow": "phase", "key": "%d", "spec": {"at": [%q], "jitter": "8s"}}`+"\n", i, at.Format("2006-01-02T15:04:05"))
	}
	sum, err := h.InBulk.Upsert(t.Context(), h.Tenant, "t", io.NopCloser(strings.NewReader(lines.String())), func([]bulk.Result) error { return nil })
	if err != nil || sum.Inserted != size {
		t.Fatalf("got %+v, %v", sum, err)
	}
	dispatchtest.Until(t, "all have ticked", func() bool { return h.Number(`SELECT count(*) FROM tick`) == size })
	if n := h.Number(`SELECT count(DISTINCT schedule_id) FROM tick WHERE nominal_at = $1 AND fired_at >= nominal_at`, at); n != size {
		t.Errorf("%d ticks are right, want %d", n, size)
	}
	// 60 of them, each somewhere in 8 s; a machine that does much else may hand out those of several seconds at once.
	if n := h.Number(`SELECT count(DISTINCT floor(extract(epoch FROM fired_at - nominal_at))) FROM tick`); n < 3 {
		t.Errorf("ticks in %d seconds", n)
	}
	if n := h.Number(`SELECT count(*) FROM tick WHERE cause <> 0`); n != 0 {
		t.Errorf("%d ticks were called late", n)
	}
}

func TestAHerdThatIsOverIsCompletedAtOnce(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	h.Put("herd", "first", dispatchtest.Rarely("skip"))
	const size = 12_000
	h.Herd("herd", "first", size-1)
	h.Exec(`UPDATE cohort SET next_at = NULL, due_at = NULL`)
	if err := h.Dispatch.Complete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.Number(`SELECT count(*) FROM schedule WHERE status = 'completed'`); n != size {
		t.Errorf("%d of %d are completed", n, size)
	}
}

// A schedule that joined a cohort that is behind catches up only if it missed a time itself.
func TestAScheduleThatMissedNothingDoesNotCatchUp(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	for _, key := range []string{"missed", "joined"} {
		h.Put("minutely", key, schedules.Params{Spec: calendar.Spec{Cron: calendar.StringList{"* * * * *"}}})
	}
	h.Exec(`UPDATE cohort SET next_at = date_trunc('minute', now()) - interval '2 minutes', due_at = date_trunc('minute', now()) - interval '2 minutes'`)
	h.Exec(`
		UPDATE member m
		SET from_at = date_trunc('minute', now()) - CASE s.key WHEN 'missed' THEN interval '2 minutes' ELSE interval '0' END
		FROM schedule s
		WHERE s.tenant_id = m.tenant_id AND s.id = m.schedule_id`)
	h.SweepAll(t)
	for _, key := range []string{"missed", "joined"} {
		first := h.History("minutely", key)[0]
		want := "schedule"
		if first.MissedCount > 0 { // also that of "joined", if a minute has passed
			want = "catch_up"
		}
		if first.Cause != want || key == "missed" && first.MissedCount < 2 {
			t.Errorf("%s: got %+v", key, first)
		}
	}
}
