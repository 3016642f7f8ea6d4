package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The times are those of the zones' published changes, written down by hand.
func TestOracleKnowsWhenClocksChange(t *testing.T) {
	t.Parallel()
	daily := func(hour, minute int) rule {
		return rule{named: func(w time.Time) bool { return w.Hour() == hour && w.Minute() == minute }}
	}
	half := rule{everyHour: true, named: func(w time.Time) bool { return w.Minute() == 30 }}
	for name, test := range map[string]struct {
		rule        rule
		zone, after string
		want        []string
	}{
		"a plain day":                {daily(8, 0), "America/New_York", "2026-11-23T13:00:00Z", []string{"2026-11-24T13:00:00Z", "2026-11-25T13:00:00Z"}},
		"a gap is shifted over":      {daily(2, 30), "America/New_York", "2026-03-07T12:00:00Z", []string{"2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"}},
		"an overlap counts once":     {daily(1, 30), "America/New_York", "2026-10-31T12:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		"the second time is not due": {daily(1, 30), "America/New_York", "2026-11-01T05:30:00Z", []string{"2026-11-02T06:30:00Z"}},
		"every hour leaves a gap":    {half, "Europe/Berlin", "2026-03-28T23:45:00Z", []string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"}},
		"half an hour's overlap":     {half, "Australia/Lord_Howe", "2026-04-04T14:00:00Z", []string{"2026-04-04T14:30:00Z", "2026-04-04T15:00:00Z", "2026-04-04T16:00:00Z"}},
		"half an hour's gap":         {daily(2, 15), "Australia/Lord_Howe", "2026-10-03T12:00:00Z", []string{"2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"}},
		"a day that is not there":    {daily(12, 0), "Pacific/Apia", "2011-12-29T22:00:00Z", []string{"2011-12-30T22:00:00Z", "2011-12-31T22:00:00Z"}},
	} {
		zone, err := time.LoadLocation(test.zone)
		if err != nil {
			t.Fatal(err)
		}
		after, err := time.Parse(time.RFC3339, test.after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, at := range test.rule.next(zone, after, len(test.want)) {
			got = append(got, stamp(at))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestCronRulesNameTheTarget(t *testing.T) {
	t.Parallel()
	list, err := zones()
	if err != nil {
		t.Fatal(err)
	}
	target := time.Date(2026, 11, 21, 18, 29, 0, 0, time.UTC)
	for _, zone := range list {
		for _, r := range cronRules(target, zone) {
			if got := r.next(zone, target.Add(-time.Second), 1)[0]; !got.Equal(target) {
				t.Errorf("%s in %s: got %s", r.cron, zone, got)
			}
		}
	}
	if got := cronRules(target, list[0])[1].cron; got != "59 23 * * 6" { // Kolkata, a Saturday
		t.Errorf("got %s", got)
	}
}
