package calendar

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What a spec leaves out has its default: the zone UTC, the hour 0, an interval that is aligned, and a cron may be a string.
func TestWhatIsLeftOutHasItsDefault(t *testing.T) {
	t.Parallel()
	for text, same := range map[string]string{
		`{"cron": "0 8 * * *"}`:                                       `{"timezone": "UTC", "cron": ["0 8 * * *"], "day_match": "or", "dst": {"gap": "auto", "overlap": "auto"}, "jitter": "0s"}`,
		`{"calendars": [{}]}`:                                         `{"timezone": "UTC", "calendars": [{"second": "0", "minute": "0", "hour": "0", "day_of_month": "*", "month": "*", "year": "*", "day_of_week": "*"}]}`,
		`{"intervals": [{"every": "5m"}]}`:                            `{"timezone": "UTC", "intervals": [{"every": "5m", "offset": "0s", "mode": "aligned"}]}`,
		`{"cron": "0 8 * * *", "exclude": {"dates": ["2027-01-01"]}}`: `{"cron": "0 8 * * *", "exclude": {"dates": ["2027-01-01"], "then": "drop"}}`,
	} {
		var of [2]*Timing
		for i, text := range []string{text, same} {
			var s Spec
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			of[i] = mustCompile(t, s)
		}
		if of[0].Hash() != of[1].Hash() || of[0].Zone() != "UTC" {
			t.Errorf("%s differs from %s", text, same)
		}
	}
}

func TestSpecReadsItsJSON(t *testing.T) {
	t.Parallel()
	const text = `{
		"timezone": "America/New_York", "cron": ["0 8 * * 1-5"], "day_match": "or",
		"calendars": [{"day_of_month": "1,15", "hour": "0", "minute": "0", "comment": "…"}],
		"intervals": [{"every": "5m", "offset": "30s", "mode": "aligned", "first": "after"}],
		"rrule": "DTSTART;TZID=America/New_York:20260105T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE",
		"at": ["2026-12-24T18:00:00"],
		"exclude": {"calendars": [{"month": "12", "day_of_month": "25"}], "dates": ["2027-01-01"], "named": ["us-holidays"], "then": "drop"},
		"start_at": null, "end_at": null, "max_ticks": null,
		"jitter": "0s",
		"dst": {"gap": "auto", "overlap": "auto"}
	}`
	var s Spec
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	timing, err := Compile(s, Context{Named: func(string) ([]Date, bool) { return nil, true }})
	if err != nil {
		t.Fatal(err)
	}
	if timing.Class() != ClassMixed {
		t.Errorf("class %s", timing.Class())
	}
	var one Spec
	if err := json.Unmarshal([]byte(`{"cron": "0 9 * * *"}`), &one); err != nil || len(one.Cron) != 1 {
		t.Errorf("cron as a string: %v %v", one.Cron, err)
	}
	b, _ := json.Marshal(Spec{Cron: StringList{"0 9 * * *"}})
	if string(b) != `{"cron":["0 9 * * *"]}` {
		t.Errorf("absent members are written: %s", b)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		spec Spec
		want []Fault
	}{
		{"a relative time without a form", Spec{Relative: []Relative{{To: "2026-12-24T18:00:00Z"}}}, []Fault{{"/relative/0", "relative_form", "", -1}}},
		{"a relative time of both forms", Spec{Relative: []Relative{{To: "2026-12-24T18:00:00Z", Offset: "1h", At: "10:00"}}}, []Fault{{"/relative/0", "relative_form", "", -1}}},
		{"a relative time without at", Spec{Relative: []Relative{{To: "2026-12-24T18:00:00Z", Days: new(1)}}}, []Fault{{"/relative/0/at", "relative_form", "", -1}}},
		{"a relative time without days", Spec{Relative: []Relative{{To: "2026-12-24T18:00:00Z", At: "10:00"}}}, []Fault{{"/relative/0/days", "relative_form", "", -1}}},
		{"a relative time with wrong members", Spec{Relative: []Relative{{To: "2026-12-24T18:00:00Z", Offset: "-1d"}, {To: "soon", Offset: "--1h"}}}, []Fault{
			{"/relative/1/to", "time_syntax", "", -1}, {"/relative/1/offset", "duration_syntax", "", -1}}},
		{"a relative time out of range", Spec{Relative: []Relative{{To: "2026-12-24T18:00:00", Offset: "-3661d"}, {To: "2026-12-24T18:00:00", Days: new(3661), At: "9:00"}}}, []Fault{
			{"/relative/0/offset", "out_of_range", "", -1}, {"/relative/1/days", "out_of_range", "", -1}, {"/relative/1/at", "time_syntax", "", -1}}},
		{"a relative time that is too late", Spec{Relative: []Relative{{To: "2150-12-30T18:00:00Z", Days: new(7), At: "09:00"}}}, []Fault{{"/relative/0", "time_out_of_range", "", -1}}},
		{"too many relative times", Spec{Relative: make([]Relative, 1001)}, []Fault{{"/relative", "too_many", "", -1}}},
		{"nothing", Spec{}, []Fault{{"", "spec_empty", "", -1}}},
		{"zone", Spec{Timezone: "europe/berlin", Cron: StringList{"0 9 * * *"}}, []Fault{{"/timezone", "unknown_timezone", "", -1}}},
		{"abbreviation", Spec{Timezone: "EST", Cron: StringList{"0 9 * * *"}}, []Fault{{"/timezone", "unknown_timezone", "", -1}}},
		{"key", Spec{Timezone: "@subject", Cron: StringList{"0 9 * * *"}}, []Fault{{"/timezone", "no_subject_zone", "", -1}}},
		{"every fault", Spec{Cron: StringList{"61 25 * * *", "0 9 * * *", "0 9 * *"}, Jitter: "x", DST: DST{"maybe", "never"}}, []Fault{
			{"/dst/gap", "unknown_value", "", -1}, {"/dst/overlap", "unknown_value", "", -1},
			{"/cron/0", "field_out_of_range", "", 0}, {"/cron/0", "field_out_of_range", "", 3}, {"/cron/2", "cron_syntax", "", 6},
			{"/jitter", "duration_syntax", "", -1}}},
		{"step 0", Spec{Cron: StringList{"*/0 * * * *"}}, []Fault{{"/cron/0", "step_zero", "", 2}}},
		{"step", Spec{Cron: StringList{"*/60 * * * *"}}, []Fault{{"/cron/0", "step_too_large", "", 2}}},
		{"hash", Spec{Cron: StringList{"0 0 * * FRI # weekly"}}, []Fault{{"/cron/0", "field_syntax", "", 8}, {"/cron/0", "field_syntax", "", 12}, {"/cron/0", "field_syntax", "", 14}}},
		{"zone prefix", Spec{Timezone: "Europe/Berlin", Cron: StringList{"CRON_TZ=Asia/Tokyo 0 9 * * *"}}, []Fault{{"/cron/0", "timezone_mismatch", "", 0}}},
		{"reboot", Spec{Cron: StringList{"@reboot"}}, []Fault{{"/cron/0", "cron_syntax", "", 0}}},
		{"every", Spec{Cron: StringList{"@every -1h"}}, []Fault{{"/cron/0", "duration_syntax", "", 7}}},
		{"long", Spec{Cron: StringList{strings.Repeat("1,", 300)}}, []Fault{{"/cron/0", "too_long", "", 512}}},
		{"calendar", Spec{Calendars: []Calendar{{Hour: "24", Comment: strings.Repeat("x", 201)}}}, []Fault{{"/calendars/0/hour", "field_out_of_range", "", 0}, {"/calendars/0/comment", "too_long", "", -1}}},
		{"interval", Spec{Intervals: []Interval{{Every: "0s"}, {Every: "1d12h"}, {Every: "500ms"}}}, []Fault{
			{"/intervals/0/every", "every_out_of_range", "", -1}, {"/intervals/1/every", "every_mixed", "", -1}, {"/intervals/2/every", "duration_syntax", "", -1}}},
		{"delay", Spec{Intervals: []Interval{{Every: "5m", Mode: "fixed_delay"}}, Cron: StringList{"0 9 * * *"}}, []Fault{{"/intervals/0/mode", "fixed_delay_alone", "", -1}}},
		{"at", Spec{At: []string{"2026-12-24T18:00:00.5Z", "tomorrow"}}, []Fault{{"/at/0", "time_fraction", "", -1}, {"/at/1", "time_syntax", "", -1}}},
		{"bounds", Spec{Cron: StringList{"0 9 * * *"}, StartAt: new("2027-01-01T00:00:00Z"), EndAt: new("2026-01-01T00:00:00Z"), MaxTicks: new(0)}, []Fault{
			{"/end_at", "end_before_start", "", -1}, {"/max_ticks", "out_of_range", "", -1}}},
		{"exclude", Spec{Cron: StringList{"0 9 * * *"}, Exclude: &Exclude{Dates: []string{"2026-02-30"}, Named: []string{"x"}, Then: "later"}}, []Fault{
			{"/exclude/then", "unknown_value", "", -1}, {"/exclude/dates/0", "date_syntax", "", -1}, {"/exclude/named/0", "unknown_calendar", "", -1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Compile(c.spec, Context{})
			faults, ok := errors.AsType[Faults](err)
			if !ok {
				t.Fatalf("got %v", err)
			}
			for i := range faults {
				if faults[i].Detail == "" {
					t.Errorf("%s has no detail", faults[i].Pointer)
				}
				faults[i].Detail = ""
			}
			if d := cmp.Diff(Faults(c.want), faults); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestEqualTimingsHashAlike(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 11, 21, 10, 0, 30, 0, time.UTC)
	for _, same := range [][]Spec{
		{{Cron: StringList{"0 9 * * 1-5"}}, {Cron: StringList{"0 9 * * MON-FRI"}}, {Cron: StringList{"0 0 9 ? * 1,2,3,4,5"}}, {Timezone: "UTC", Cron: StringList{"TZ=UTC 0 9 * * mon,tue,wed,thu,fri"}},
			{Calendars: []Calendar{{Hour: "9", DayOfWeek: "1-5"}}}, {Cron: StringList{"0 9 * * 1-5", "0 9 * * 1-5"}, Jitter: "0s", DST: DST{"shift_forward", "first"}}},
		{{Cron: StringList{"0 9 * * *", "0 17 * * *"}}, {Cron: StringList{"0 17 * * *", "0 9 * * *"}}},
		{{Cron: StringList{"0 9 * * 0"}}, {Cron: StringList{"0 9 * * 7"}}, {Cron: StringList{"0 9 * * SUN"}}},
		{{Intervals: []Interval{{Every: "5m"}}}, {Intervals: []Interval{{Every: "300s", Offset: "10m", Mode: "aligned"}}}},
		{{Intervals: []Interval{{Every: "30s", Mode: "fixed_rate"}}}, {Intervals: []Interval{{Every: "30s", Mode: "fixed_rate", First: "now"}}}, {Cron: StringList{"@every 30s"}}, {Intervals: []Interval{{Every: "30s"}}}},
		{{RRule: "DTSTART:20260105T090000Z\nRRULE:FREQ=DAILY;COUNT=3"}, {RRule: "RRULE:COUNT=3;FREQ=DAILY;BYHOUR=9,9\r\nDTSTART:20260105T090000"}},
		{{Cron: StringList{"0 9 * * *"}, MaxTicks: new(5)}, {Cron: StringList{"0 9 * * *"}}},
	} {
		var first *Timing
		for i, s := range same {
			timing, err := Compile(s, Context{Created: created})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = timing
				continue
			}
			if timing.Hash() != first.Hash() {
				t.Errorf("%+v and %+v:\n%s\n%s", same[0], s, first.Canonical(), timing.Canonical())
			}
		}
	}
	base := Spec{Cron: StringList{"0 9 * * *"}}
	seen := map[[16]byte]Spec{}
	for _, s := range []Spec{base, {Cron: base.Cron, Timezone: "Europe/Berlin"}, {Cron: base.Cron, Jitter: "1m"}, {Cron: base.Cron, DST: DST{Gap: "skip"}},
		{Cron: base.Cron, StartAt: new("2027-01-01T00:00:00Z")}, {Cron: base.Cron, EndAt: new("2027-01-01T00:00:00Z")}, {Cron: base.Cron, Exclude: &Exclude{Dates: []string{"2027-01-01"}}},
		{Cron: base.Cron, Exclude: &Exclude{Dates: []string{"2027-01-01"}, Then: "next"}}, {Cron: StringList{"1 9 * * *"}}, {Intervals: []Interval{{Every: "1d"}}}, {Intervals: []Interval{{Every: "24h"}}}} {
		h := mustCompile(t, s).Hash()
		if other, ok := seen[h]; ok {
			t.Errorf("%+v and %+v hash alike", s, other)
		}
		seen[h] = s
	}
}

func TestHashedFieldsGoByIdentity(t *testing.T) {
	t.Parallel()
	minutes := map[int]bool{}
	for _, identity := range []string{"a", "b", "c", "d", "e", "f"} {
		var first Tick
		for range 2 {
			timing, err := Compile(Spec{Cron: StringList{"H H(9-17) H * *"}}, Context{Identity: identity})
			if err != nil {
				t.Fatal(err)
			}
			got, _ := timing.Next(time.Date(2026, 1, 31, 23, 59, 0, 0, time.UTC))
			if !first.At.IsZero() && got != first {
				t.Errorf("%s: got %s and %s", identity, first.At, got.At)
			}
			first = got
		}
		if h := first.At.Hour(); h < 9 || h > 17 {
			t.Errorf("hour %d", h)
		}
		minutes[first.At.Minute()] = true
	}
	if len(minutes) < 4 {
		t.Errorf("six identities share %d minutes", len(minutes))
	}
}
