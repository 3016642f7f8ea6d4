package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
)

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func compiled(t *testing.T, s calendar.Spec) *calendar.Timing {
	t.Helper()
	timing, err := calendar.Compile(s, calendar.Context{})
	if err != nil {
		t.Fatal(err)
	}
	return timing
}

// explained is what is said of a moment; a wall time is read as it is for a schedule without a record.
func explained(t *testing.T, k known, at string) Explanation {
	t.Helper()
	a, err := readAsked(at)
	if err != nil {
		t.Fatal(err)
	}
	if k.at = a.instant; a.instant.IsZero() {
		k.read(a, nil)
	}
	return k.explain()
}

func TestExplainSaysWhyEachOutcome(t *testing.T) {
	t.Parallel()
	day := func(text string) *time.Time { return new(moment(t, text)) }
	daily := calendar.Spec{Timezone: "Europe/Paris", Cron: calendar.StringList{"0 8 * * *"}, Exclude: &calendar.Exclude{Dates: []string{"2026-03-20"}}}
	base := func() known {
		return known{
			now: moment(t, "2026-04-01T12:00:00Z"), kept: moment(t, "2026-03-02T12:00:00Z"),
			story: story{
				created: moment(t, "2026-01-01T00:00:00Z"), whole: true, status: policy.Active,
				seen: day("2026-04-01T06:00:00Z"), from: day("2026-01-01T00:00:01Z"),
				versions: []version{{from: moment(t, "2026-01-01T00:00:00Z"), timing: compiled(t, daily)}},
			},
		}
	}
	ticked := func(state record.State, reason record.Reason, change ...func(*history.Tick)) func(*known) {
		return func(k *known) {
			at := moment(t, "2026-03-29T06:00:00Z")
			one := history.Tick{Timestamp: at, State: state.String(), Reason: reason.String(), Cause: record.BySchedule.String(), DST: "none", FiredAt: new(at.Add(time.Second)), EndedAt: new(at.Add(2 * time.Second)), Attempt: 1}
			for _, fn := range change {
				fn(&one)
			}
			k.tick = &one
		}
	}
	gap := func(policy string) func(*known) {
		return func(k *known) {
			k.versions[0].timing = compiled(t, calendar.Spec{Timezone: "Europe/Paris", Cron: calendar.StringList{"30 2 * * *"}, DST: calendar.DST{Gap: policy}})
			k.seen = day("2026-03-28T01:30:00Z")
			k.now = moment(t, "2026-03-28T12:00:00Z")
		}
	}
	for name, c := range map[string]struct {
		at      string
		given   func(*known)
		outcome string
		says    []string
	}{
		"succeeded":       {"2026-03-29T08:00", ticked(record.Succeeded, record.NoReason), "fired", []string{"2026-03-29 08:00 +02:00 in Europe/Paris", "succeeded"}},
		"late":            {"2026-03-29T06:00:00Z", ticked(record.Succeeded, record.NoReason, func(t *history.Tick) { t.FiredAt = new(t.Timestamp.Add(time.Hour)) }), "fired", []string{"1h late"}},
		"running":         {"2026-03-29T08:00", ticked(record.Running, record.NoReason, func(t *history.Tick) { t.Attempt, t.EndedAt = 3, nil }), "running", []string{"attempt 3"}},
		"waiting":         {"2026-03-29T08:00", ticked(record.Scheduled, record.NoReason, func(t *history.Tick) { t.EndedAt = nil }), "running", []string{"waits"}},
		"failed":          {"2026-03-29T08:00", ticked(record.Failed, record.NoReason, func(t *history.Tick) { t.Attempt, t.Error = 10, new("no mailbox") }), "failed", []string{"10 attempts", "no mailbox"}},
		"cancelled":       {"2026-03-29T08:00", ticked(record.Cancelled, record.Superseded), "cancelled", []string{"newer"}},
		"deleted":         {"2026-03-29T08:00", ticked(record.Cancelled, record.NoReason, func(t *history.Tick) { t.Attempt = 0 }), "cancelled", []string{"deleted"}},
		"overlap":         {"2026-03-29T08:00", ticked(record.Skipped, record.Overlap), "skipped", []string{"still running"}},
		"expired":         {"2026-03-29T08:00", ticked(record.Skipped, record.Expired), "skipped", []string{"max_lateness"}},
		"requested":       {"2026-03-29T08:00", ticked(record.Skipped, record.Requested), "skipped", []string{"asked for"}},
		"no workflow":     {"2026-03-29T08:00", ticked(record.Skipped, record.NoWorkflow), "skipped", []string{"workflow is gone"}},
		"quiet":           {"2026-03-29T08:00", ticked(record.Skipped, record.QuietHours), "skipped", []string{"quiet hours"}},
		"superseded":      {"2026-03-29T08:00", ticked(record.Skipped, record.Superseded), "skipped", []string{"took its place"}},
		"recorded paused": {"2026-03-29T08:00", ticked(record.Skipped, record.Paused), "paused", []string{"paused"}},
		"recorded missed": {"2026-03-29T08:00", ticked(record.Skipped, record.Missed), "missed", []string{"too late"}},
		"swept, excluded": {"2026-03-29T08:00", ticked(record.Skipped, record.Excluded), "excluded", []string{"calendar"}},
		"by hand":         {"2026-03-29T08:00", ticked(record.Succeeded, record.NoReason, func(t *history.Tick) { t.Cause = "manual" }), "fired", []string{"by hand"}},
		"backfilled":      {"2026-03-29T08:00", ticked(record.Succeeded, record.NoReason, func(t *history.Tick) { t.Cause = "backfill" }), "fired", []string{"backfilled"}},

		"not due": {"2026-03-29T09:00", nil, "not_due", []string{"2026-03-29 08:00 +02:00", "2026-03-30 08:00"}},
		"not due, one by hand": {"2026-03-29T09:00", func(k *known) {
			k.manual = &history.Tick{Timestamp: moment(t, "2026-03-29T07:12:03Z"), State: "succeeded"}
		}, "not_due", []string{"by hand at 2026-03-29 09:12:03"}},
		"excluded":       {"2026-03-20T08:00", nil, "excluded", []string{"excluded"}},
		"before created": {"2025-12-31T08:00", nil, "before_created", []string{"2026-01-01 01:00 +01:00"}},
		"missed": {"2026-03-29T08:00", func(k *known) {
			k.after = &history.Tick{Timestamp: moment(t, "2026-03-31T06:00:00Z"), MissedCount: 2}
		}, "missed", []string{"one of the 2", "2026-03-31 08:00"}},
		"not missed": {"2026-03-29T08:00", func(k *known) {
			k.after = &history.Tick{Timestamp: moment(t, "2026-03-31T06:00:00Z"), MissedCount: 1}
		}, "unknown", []string{"no record"}},
		"no longer kept": {"2026-02-01T08:00", nil, "unknown", []string{"no longer kept"}},
		"paused then": {"2026-03-29T08:00", func(k *known) {
			k.versions = []version{
				{from: k.created, to: moment(t, "2026-03-27T12:00:00Z"), timing: k.versions[0].timing},
				{from: moment(t, "2026-03-27T12:00:00Z"), to: moment(t, "2026-03-30T10:00:00Z"), paused: true, timing: k.versions[0].timing},
				{from: moment(t, "2026-03-30T10:00:00Z"), timing: k.versions[0].timing},
			}
		}, "paused", []string{"2026-03-27 08:00 +01:00", "2026-03-31 08:00"}},
		"paused until then": {"2026-03-29T08:00", func(k *known) {
			k.versions[0].paused, k.versions[0].pausedUntil = true, day("2026-03-29T06:00:00Z")
			k.seen = nil
		}, "will_fire", []string{"about to be"}},
		"paused until later": {"2026-03-29T08:00", func(k *known) {
			k.versions[0].paused, k.versions[0].pausedUntil = true, day("2026-03-29T06:00:01Z")
		}, "paused", []string{"2026-03-30 08:00"}},
		"of an earlier spec": {"2026-03-10T09:00", func(k *known) {
			nine := compiled(t, calendar.Spec{Timezone: "Europe/Paris", Cron: calendar.StringList{"0 9 * * *"}})
			k.versions = []version{
				{from: k.created, to: moment(t, "2026-03-15T00:00:00Z"), timing: nine},
				{from: moment(t, "2026-03-15T00:00:00Z"), timing: k.versions[0].timing},
			}
			k.tick = nil
			k.after = &history.Tick{Timestamp: moment(t, "2026-03-14T08:00:00Z"), MissedCount: 4}
		}, "missed", []string{"one of the 4"}},
		"not of the spec then": {"2026-03-10T08:00", func(k *known) {
			k.versions = []version{
				{from: k.created, to: moment(t, "2026-03-15T00:00:00Z"), timing: compiled(t, calendar.Spec{Timezone: "Europe/Paris", Cron: calendar.StringList{"0 9 * * *"}})},
				{from: moment(t, "2026-03-15T00:00:00Z"), timing: k.versions[0].timing},
			}
		}, "not_due", []string{"2026-03-09 09:00", "2026-03-10 09:00"}},
		"versions gone": {"2026-03-10T08:00", func(k *known) {
			k.whole, k.versions[0].from = false, moment(t, "2026-03-15T00:00:00Z")
		}, "unknown", []string{"no longer kept"}},
		"spec unreadable": {"2026-03-10T08:00", func(k *known) { k.versions[0].timing = nil }, "unknown", []string{"computed"}},

		"will fire":       {"2026-04-02T08:00", nil, "will_fire", []string{"handed out at 2026-04-02 08:00 +02:00"}},
		"due":             {"2026-04-01T08:00", func(k *known) { k.seen = day("2026-03-31T06:00:00Z") }, "will_fire", []string{"about to be"}},
		"due and stopped": {"2026-04-01T08:00", func(k *known) { k.seen, k.stopped = day("2026-03-31T06:00:00Z"), true }, "will_fire", []string{"stopped at present"}},
		"stopped":         {"2026-04-02T08:00", func(k *known) { k.stopped = true }, "will_fire", []string{"still stopped"}},
		"to be left out":  {"2026-04-02T08:00", func(k *known) { k.skips = []time.Time{moment(t, "2026-04-02T06:00:00Z")} }, "skipped", []string{"asked for"}},
		"is paused": {"2026-04-02T08:00", func(k *known) {
			k.status, k.versions[0].paused, k.from = policy.Paused, true, nil
		}, "paused", []string{"once it is resumed"}},
		"is paused until": {"2026-04-02T08:00", func(k *known) {
			k.status, k.versions[0].paused, k.versions[0].pausedUntil, k.from = policy.Paused, true, day("2026-04-02T12:00:00Z"), day("2026-04-02T12:00:00Z")
		}, "paused", []string{"until 2026-04-02 14:00", "2026-04-03 08:00"}},
		"last tick":   {"2026-04-03T08:00", func(k *known) { k.until = day("2026-04-02T06:00:00Z") }, "after_end", []string{"max_ticks", "2026-04-02 08:00"}},
		"completed":   {"2026-04-03T08:00", func(k *known) { k.status, k.from = policy.Completed, nil }, "after_end", []string{"completed"}},
		"quarantined": {"2026-04-03T08:00", func(k *known) { k.status, k.from = policy.Quarantined, nil }, "unknown", []string{"quarantined"}},
		"after end_at": {"2026-04-03T08:00", func(k *known) {
			ends := daily
			ends.EndAt = new("2026-04-02T08:00:00")
			k.versions[0].timing = compiled(t, ends)
		}, "after_end", []string{"end_at", "none follows"}},
		"before start_at": {"2026-02-03T08:00", func(k *known) {
			begins := daily
			begins.StartAt = new("2026-03-01T08:00:00")
			k.versions[0].timing = compiled(t, begins)
		}, "not_due", []string{"start_at", "2026-03-01 08:00"}},
		"nothing left": {"2026-04-03T08:00", func(k *known) {
			k.versions[0].timing = compiled(t, calendar.Spec{Timezone: "Europe/Paris", At: []string{"2026-03-01T08:00:00"}})
		}, "after_end", []string{"Nothing is left", "2026-03-01 08:00"}},
		"first comes later": {"2026-04-02T08:00", func(k *known) { k.seen, k.from = nil, day("2026-04-03T00:00:00Z") }, "not_due", []string{"2026-04-03 08:00"}},
		"first came later":  {"2026-03-29T08:00", func(k *known) { k.seen, k.from = nil, day("2026-03-30T00:00:00Z") }, "not_due", []string{"first"}},
		"jitter": {"2026-04-02T08:00", func(k *known) {
			spread := daily
			spread.Jitter = "10m"
			k.versions[0].timing = compiled(t, spread)
		}, "will_fire", []string{"up to 10m later"}},
		"moved from there": {"2026-04-02T08:00", func(k *known) { k.move(t, "2026-04-02T06:00:00Z", "2026-04-02T07:30:00Z") }, "not_due", []string{"moved to 2026-04-02 09:30", "by bob"}},
		"moved there":      {"2026-04-02T09:30", func(k *known) { k.move(t, "2026-04-02T06:00:00Z", "2026-04-02T07:30:00Z") }, "will_fire", []string{"moved there from 2026-04-02 08:00"}},

		"gap, moved forward":   {"2026-03-29T02:30", gap("auto"), "will_fire", []string{"did not come in Europe/Paris", "02:00:00 to 03:00:00", "handed out at 2026-03-29 03:30 +02:00"}},
		"gap, next valid":      {"2026-03-29T02:30", gap("next_valid"), "will_fire", []string{"did not come", "handed out at 2026-03-29 03:00 +02:00"}},
		"gap, left out":        {"2026-03-29T02:30", gap("skip"), "dst_gap", []string{"did not come", "dst.gap", "2026-03-30 02:30"}},
		"gap, by its instant":  {"2026-03-29T01:30:00Z", gap("skip"), "dst_gap", []string{"skipped by the clock"}},
		"gap, after the tick":  {"2026-03-29T01:30:00Z", gap("next_valid"), "not_due", []string{"has its tick at 2026-03-29 03:00 +02:00"}},
		"gap, another time":    {"2026-03-29T02:30", nil, "not_due", []string{"did not come", "2026-03-29 08:00"}},
		"New York, gap":        {"2026-03-08T02:30", newYork(t, "30 2 * * *", "skip"), "dst_gap", []string{"America/New_York", "2026-03-09 02:30 -04:00"}},
		"New York, first":      {"2026-11-01T01:30", newYork(t, "30 1 * * *", ""), "will_fire", []string{"twice", "first time (-04:00)"}},
		"New York, last":       {"2026-11-01T01:30", newYork(t, "30 1 * * *", "last"), "will_fire", []string{"twice", "second time (-05:00)"}},
		"Paris, overlap":       {"2026-10-25T02:30", gap("auto"), "will_fire", []string{"twice", "first time (+02:00)"}},
		"overlap, not the one": {"2026-10-25T01:30:00Z", gap("auto"), "not_due", []string{"2026-10-25 02:30 +02:00"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := base()
			if c.given != nil {
				c.given(&k)
			}
			got := explained(t, k, c.at)
			if got.Outcome != c.outcome {
				t.Errorf("got %s: %s", got.Outcome, got.Detail)
			}
			for _, part := range c.says {
				if !strings.Contains(got.Detail, part) {
					t.Errorf("%q does not say %q", got.Detail, part)
				}
			}
		})
	}
}

// move has a tick of the present version moved.
func (k *known) move(t *testing.T, at, to string) {
	m := cohorts.Moved{At: moment(t, at), To: moment(t, to), MovedAt: k.now, By: "bob"}
	k.moves = append(k.moves, m)
	k.versions[0].timing = k.versions[0].timing.Moved(cohorts.Shifts(k.moves))
}

func newYork(t *testing.T, cron, policy string) func(*known) {
	s := calendar.Spec{Timezone: "America/New_York", Cron: calendar.StringList{cron}}
	if policy == "skip" {
		s.DST.Gap = policy
	} else {
		s.DST.Overlap = policy
	}
	timing := compiled(t, s)
	return func(k *known) {
		k.versions[0].timing = timing
		k.now = moment(t, "2026-03-01T12:00:00Z")
		k.seen = new(moment(t, "2026-03-01T06:30:00Z"))
	}
}

func TestExplainFindsTheTicksNextToAMoment(t *testing.T) {
	t.Parallel()
	daily := compiled(t, calendar.Spec{Cron: calendar.StringList{"0 8 * * *"}})
	k := known{
		at: moment(t, "2026-04-02T08:00:00Z"), now: moment(t, "2026-04-01T12:00:00Z"),
		story: story{
			created: moment(t, "2026-03-30T12:00:00Z"), whole: true, status: policy.Active, from: new(moment(t, "2026-03-30T12:00:01Z")),
			until: new(moment(t, "2026-04-05T08:00:00Z")), skips: []time.Time{moment(t, "2026-04-03T08:00:00Z"), moment(t, "2026-04-02T08:00:00Z")},
			versions: []version{{from: moment(t, "2026-03-30T12:00:00Z"), timing: daily}},
		},
	}
	check := func(at, previous, next string) {
		t.Helper()
		k.at = moment(t, at)
		e := k.explain()
		for _, p := range []struct {
			got  *time.Time
			want string
		}{{e.Previous, previous}, {e.Next, next}} {
			got := ""
			if p.got != nil {
				got = p.got.Format(time.RFC3339)
			}
			if got != p.want {
				t.Errorf("next to %s: got %q, want %q", at, got, p.want)
			}
		}
	}
	check("2026-04-01T08:00:00Z", "2026-03-31T08:00:00Z", "2026-04-04T08:00:00Z")
	check("2026-03-31T08:00:00Z", "", "2026-04-01T08:00:00Z")
	check("2026-04-04T08:00:00Z", "2026-04-01T08:00:00Z", "2026-04-05T08:00:00Z")
	check("2026-04-09T08:00:00Z", "2026-04-05T08:00:00Z", "")
	check("2026-01-01T00:00:00Z", "", "2026-03-31T08:00:00Z")
	k.versions[0].timing = compiled(t, calendar.Spec{Cron: calendar.StringList{"* * * * * *", "0 8 * * *"}}) // what is not to come is not walked through
	k.status, k.from, k.until, k.skips = policy.Completed, nil, nil, nil
	check("2100-01-01T00:00:00Z", "2026-04-01T12:00:00Z", "")
}
