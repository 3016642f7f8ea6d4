package calendar

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

type vector struct {
	ID       string `json:"id"`
	Cron     string `json:"cron"`
	Calendar map[string][]struct {
		Start int  `json:"start"`
		End   *int `json:"end"`
		Step  int  `json:"step"`
	} `json:"calendar"`
	ICS     string      `json:"ics"`
	Every   int64       `json:"every_seconds"`
	Anchor  string      `json:"anchor"`
	Zone    string      `json:"tz"`
	Gap     string      `json:"gap_policy"`
	Overlap string      `json:"overlap_policy"`
	Class   Class       `json:"class"`
	After   time.Time   `json:"after"`
	Want    []time.Time `json:"expected"`
	Before  []time.Time `json:"expected_prev"`
	Done    bool        `json:"exhausted"`
}

func readVectors(t *testing.T, name string) []vector {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []vector `json:"cases"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) == 0 {
		t.Fatalf("no vectors in %s", name)
	}
	return file.Cases
}

// spec is the vector as a client would write it.
func (v vector) spec() Spec {
	s := Spec{Timezone: v.Zone, DST: DST{v.Gap, v.Overlap}, RRule: v.ICS}
	if v.Cron != "" {
		s.Cron = StringList{v.Cron}
	}
	if v.Every > 0 {
		s.Intervals = []Interval{{Every: fmt.Sprintf("%ds", v.Every), Mode: "fixed_rate"}}
	}
	if v.Calendar != nil {
		field := func(name string) string {
			var parts []string
			for _, r := range v.Calendar[name] {
				end := r.Start
				if r.End != nil {
					end = *r.End
				}
				part := fmt.Sprintf("%d-%d", r.Start, end)
				if r.Step > 1 {
					part += fmt.Sprintf("/%d", r.Step)
				}
				parts = append(parts, part)
			}
			return strings.Join(parts, ",")
		}
		s.Calendars = []Calendar{{Second: field("second"), Minute: field("minute"), Hour: field("hour"), DayOfMonth: field("day_of_month"),
			Month: field("month"), Year: field("year"), DayOfWeek: field("day_of_week")}}
	}
	return s
}

func (v vector) check(t *testing.T, timing *Timing) {
	t.Helper()
	var got []time.Time
	for tick := range timing.All(v.After) {
		if len(got) == len(v.Want) {
			if v.Done {
				t.Errorf("a tick at %s beyond the last", tick.At)
			}
			break
		}
		got = append(got, tick.At)
	}
	if !slices.Equal(got, v.Want) {
		t.Errorf("after %s\ngot  %v\nwant %v", v.After, got, v.Want)
	}
	before := v.After
	for _, want := range v.Before {
		tick, ok := timing.Prev(before)
		if !ok || !tick.At.Equal(want) {
			t.Fatalf("before %s: got %v %v, want %v", before, tick.At, ok, want)
		}
		before = tick.At
	}
	checkBackward(t, timing, v.After, v.Want)
}

// checkBackward finds the wanted ticks once more from their end.
func checkBackward(t *testing.T, timing *Timing, after time.Time, want []time.Time) {
	t.Helper()
	for i := len(want) - 1; i >= 0; i-- {
		tick, ok := timing.Prev(want[i].Add(time.Second))
		if !ok || !tick.At.Equal(want[i]) {
			t.Errorf("before %s + 1s: got %v %v", want[i], tick.At, ok)
		}
		if i > 0 {
			if tick, ok = timing.Prev(want[i]); !ok || !tick.At.Equal(want[i-1]) {
				t.Errorf("before %s: got %v %v, want %v", want[i], tick.At, ok, want[i-1])
			}
		}
	}
	if len(want) > 0 {
		if tick, ok := timing.Prev(want[0]); ok && tick.At.After(after) {
			t.Errorf("before %s: got %v, which is after %v", want[0], tick.At, after)
		}
	}
}

func TestVectors(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cron", "interval", "rrule"} {
		for _, v := range readVectors(t, name) {
			t.Run(v.ID, func(t *testing.T) {
				t.Parallel()
				anchor, _ := time.Parse(time.RFC3339, v.Anchor)
				timing, err := Compile(v.spec(), Context{Created: anchor})
				if err != nil {
					t.Fatalf("%+v: %v", v.spec(), err)
				}
				if v.Class != "" && timing.Class() != v.Class {
					t.Errorf("class %s, want %s", timing.Class(), v.Class)
				}
				v.check(t, timing)
				again, err := FromCanonical(timing.Canonical(), Context{})
				if err != nil {
					t.Fatal(err)
				}
				if again.Hash() != timing.Hash() || string(again.Canonical()) != string(timing.Canonical()) {
					t.Errorf("canonical forms differ: %s and %s", again.Canonical(), timing.Canonical())
				}
				v.check(t, again)
			})
		}
	}
}
