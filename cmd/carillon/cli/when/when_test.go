package when_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/cmd/carillon/cli/when"
)

// now is half past eleven at night in London, and already tomorrow in Berlin.
var now = time.Date(2026, 3, 28, 23, 30, 0, 0, time.UTC)

func TestInstants(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-03-29T02:30:00Z":                  "2026-03-29T02:30:00Z",
		"2026-03-29T02:30:00.25+02:00":          "2026-03-29T00:30:00.25Z",
		"2026-03-29t02:30:00z":                  "2026-03-29T02:30:00Z",
		"now":                                   "2026-03-28T23:30:00Z",
		"  now  ":                               "2026-03-28T23:30:00Z",
		"+2h":                                   "2026-03-29T01:30:00Z",
		"-1d":                                   "2026-03-27T23:30:00Z",
		"+1w":                                   "2026-04-04T23:30:00Z",
		"+1w2d3h4m5s":                           "2026-04-07T02:34:05Z",
		"now-90s":                               "2026-03-28T23:28:30Z",
		"now +5m":                               "2026-03-28T23:35:00Z",
		"tomorrow 08:00 Europe/Berlin":          "2026-03-30T06:00:00Z",
		"today 08:00 Europe/Berlin":             "2026-03-29T06:00:00Z",
		"yesterday 08:00 Europe/Berlin":         "2026-03-28T07:00:00Z",
		"tomorrow Europe/London":                "2026-03-29T00:00:00Z",
		"tomorrow 08:00":                        "2026-03-30T06:00:00Z", // the reader's zone is Berlin
		"2026-03-29 01:59:59":                   "2026-03-29T00:59:59Z",
		"2026-03-29 03:00":                      "2026-03-29T01:00:00Z",
		"2026-03-29T03:00":                      "2026-03-29T01:00:00Z",
		"2026-03-29T03:00 America/New_York":     "2026-03-29T07:00:00Z",
		"2026-03-29 02:30 UTC":                  "2026-03-29T02:30:00Z",
		"2026-03-29":                            "2026-03-28T23:00:00Z",
		"2026-12-24 18:00:30 Asia/Kolkata":      "2026-12-24T12:30:30Z",
		"2011-12-31 12:00 Pacific/Apia":         "2011-12-30T22:00:00Z",
		"\t2026-12-24\t18:00\tAsia/Kathmandu\t": "2026-12-24T12:15:00Z",
	} {
		got, err := when.Reader{Now: now, Zone: "Europe/Berlin"}.Instant(text)
		if err != nil || got.Format(time.RFC3339Nano) != want || got.Location() != time.UTC {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
}

func TestMomentsStayWallTimesWithoutAZone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-03-29 02:30":               "2026-03-29T02:30:00", // Berlin skips it; the schedule's zone need not
		"2026-10-25 02:30:15":            "2026-10-25T02:30:15",
		"2026-03-29T02:30":               "2026-03-29T02:30:00",
		"2026-03-29":                     "2026-03-29T00:00:00",
		"tomorrow 08:00":                 "2026-03-30T08:00:00",
		"tomorrow 08:00 Europe/London":   "2026-03-29T07:00:00Z",
		"2026-03-29 03:30 Europe/Berlin": "2026-03-29T01:30:00Z",
		"+2h":                            "2026-03-29T01:30:00Z",
		"2026-03-29T02:30:00+05:30":      "2026-03-28T21:00:00Z",
	} {
		got, err := when.Reader{Now: now, Zone: "Europe/Berlin"}.Moment(text)
		if err != nil || got.String() != want {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
	if got, err := (when.Reader{Now: now}).Moment("2026-03-29 02:30"); err != nil || got.Wall != "2026-03-29T02:30:00" {
		t.Errorf("without a zone: got %v, %v", got, err)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		offset int
		detail string
	}{
		"":                               {0, "write a time like"},
		"   ":                            {0, "write a time like"},
		"noon":                           {0, "write a time like"},
		"nowhere":                        {3, "write a time like"},
		"+":                              {1, "write a duration like"},
		"+2x":                            {2, "write a duration like"},
		"+2h3":                           {4, "write a duration like"},
		"+99999d":                        {1, "more than 3660 days away"},
		"+2h Europe/Berlin":              {4, "nothing may follow"},
		"now +2h 3m":                     {8, "nothing may follow"},
		"now  +2y":                       {7, "write a duration like"},
		"2026-02-30":                     {0, "not a date like"},
		"1969-12-31":                     {0, "not a date like"},
		"2026-03-29 25:00":               {11, "not a time of the day"},
		"2026-03-29 8:00":                {11, "not a time of the day"},
		"2026-03-29T02:61":               {11, "not a time of the day"},
		"2026-03-29 02:30 europe/berlin": {17, "is it Europe/Berlin?"},
		"2026-03-29 02:30 Berlin":        {17, "is it Europe/Berlin?"},
		"2026-03-29 02:30 Nowhere":       {17, "such as Europe/Berlin"},
		"2026-03-29 02:30 10:00":         {17, "nothing may follow here but a zone"},
		"2026-03-29T02:30:00+24:00":      {0, "not an RFC 3339 time"},
		"2026-03-29 02:30":               {11, "02:30 on 29 March 2026 does not exist in Europe/Berlin: the clock goes from 02:00 to 03:00"},
		"2026-10-25 02:30": {11, "02:30 on 25 October 2026 comes twice in Europe/Berlin: " +
			"write 2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00"},
		"2011-12-30 Pacific/Apia": {0, "00:00 on 30 December 2011 does not exist in Pacific/Apia: the clock goes from 00:00 on 30 December to 00:00 on 31 December"},
	} {
		_, err := when.Reader{Now: now, Zone: "Europe/Berlin"}.Instant(text)
		wrong, ok := errors.AsType[*when.Error](err)
		if !ok || wrong.Offset != want.offset || !strings.Contains(wrong.Detail, want.detail) {
			t.Errorf("%q: got %#v, want %+v", text, err, want)
		}
	}
	for _, text := range []string{"2026-03-29 02:30", "tomorrow 08:00"} {
		if _, err := (when.Reader{Now: now}).Instant(text); err == nil || !strings.Contains(err.Error(), "name the zone, as in: "+text+" Europe/Berlin") {
			t.Errorf("%q without a zone: got %v", text, err)
		}
	}
}

// FuzzInstant checks that no text makes the reader panic, that errors point into the text, and that an instant is read back as itself
// from what is printed, also as a wall time of a zone.
func FuzzInstant(f *testing.F) {
	for _, seed := range []string{"", "now", "+2h", "-1d", "now -5m", "tomorrow 08:00 Europe/Berlin", "2026-03-29 02:30", "2026-03-29T02:30:00Z", "2026-10-25 02:30", "now+", "T", "+1w1w"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := when.Reader{Now: now, Zone: "Europe/Berlin"}
		at, err := r.Instant(text)
		if wrong, ok := errors.AsType[*when.Error](err); ok {
			if wrong.Offset < 0 || wrong.Offset > len(text) || wrong.Detail == "" {
				t.Fatalf("%q: the error points to byte %d: %s", text, wrong.Offset, wrong.Detail)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: got %v", text, err)
		}
		if at.Year() < 1 || at.Year() > 9999 {
			return
		}
		if again, err := r.Instant(at.Format(time.RFC3339Nano)); err != nil || !again.Equal(at) {
			t.Fatalf("%q is %v, and that is read as %v, %v", text, at, again, err)
		}
		shown := at.In(calendar.InForce().Location("Europe/Berlin"))
		if at.Nanosecond() != 0 || shown.Year() < 1970 || shown.Year() > 2150 {
			return
		}
		again, err := r.Instant(shown.Format(time.DateTime))
		if err != nil && !strings.Contains(err.Error(), "comes twice") || err == nil && !again.Equal(at) {
			t.Fatalf("%q is %v, and its wall time is read as %v, %v", text, at, again, err)
		}
	})
}
