// Package when reads the times that people write on a command line. It reads no clock and does no I/O: the caller says what "now" is.
//
//	2026-03-29T02:30:00Z          an instant, RFC 3339
//	now  +2h  -1d  +1w2d  now-90s an instant before or after now; a day is 24 hours
//	tomorrow 08:00 Europe/Berlin  a day, a time of the day and a zone; also today and yesterday
//	2026-03-29 02:30              a wall time; without a time of the day it is 00:00
//
// The tz database of package calendar decides which instant a wall time is, as it does on the server.
package when

import (
	"fmt"
	"strings"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/instant"
)

// A Reader reads times.
type Reader struct {
	Now  time.Time
	Zone string // the zone of wall times and days without one; "" if there is none
}

// A Moment is an instant, or a wall time whose zone the server knows. Exactly one of the two is set.
type Moment struct {
	At   time.Time
	Wall string // such as 2026-03-29T02:30:00
}

// String returns the moment as the API takes it.
func (m Moment) String() string {
	if m.Wall != "" {
		return m.Wall
	}
	return m.At.UTC().Format(time.RFC3339Nano)
}

// Error is what is wrong with a time. Offset is the byte of Text at which the mistake begins.
type Error struct {
	Text   string
	Offset int
	Detail string
}

// Error returns the text and what is wrong with it.
func (e *Error) Error() string { return fmt.Sprintf("%q: %s", e.Text, e.Detail) }

// The first and the last year of a wall time: the tz database of the calendar covers them.
const firstYear, lastYear = 1970, 2150

const forms = "write a time like 2026-03-29T02:30:00Z, now, +2h, -1d, tomorrow 08:00 Europe/Berlin, or 2026-03-29 02:30 Europe/Berlin"

// Instant reads an instant. A wall time without a zone is one of the reader's zone. The error is of type *Error.
func (r Reader) Instant(text string) (time.Time, error) {
	m, err := r.read(text, false)
	return m.At, err
}

// Moment reads an instant or a wall time. A date and time without a zone remains a wall time. The error is of type *Error.
func (r Reader) Moment(text string) (Moment, error) { return r.read(text, true) }

func (r Reader) read(text string, walls bool) (Moment, error) {
	in := &input{text: text, words: split(text)}
	if len(in.words) == 0 {
		return Moment{}, in.wrong(0, forms)
	}
	if first := in.words[0]; len(in.words) == 1 && looksExact(first.text) {
		at, err := instant.Parse(strings.ToUpper(first.text))
		if err != nil {
			return Moment{}, in.wrong(first.offset, "it is not an RFC 3339 time like 2026-03-29T02:30:00Z or 2026-03-29T02:30:00+02:00")
		}
		return Moment{At: at.UTC()}, nil
	}
	if first := in.words[0]; strings.HasPrefix(first.text, "now") || first.text[0] == '+' || first.text[0] == '-' {
		at, err := in.fromNow(r.Now)
		return Moment{At: at}, err
	}
	return r.wallTime(in, walls)
}

// looksExact reports whether a word is a date and a time with an offset.
func looksExact(word string) bool {
	if len(word) <= len(time.DateOnly) || word[len(time.DateOnly)]|0x20 != 't' {
		return false
	}
	return strings.ContainsAny(word[len(time.DateOnly)+1:], "Zz+-")
}

// wallTime reads a day, then perhaps a time of the day, then perhaps a zone.
func (r Reader) wallTime(in *input, walls bool) (Moment, error) {
	in.breakAtT()
	zone, named := r.Zone, word{}
	if last := in.words[len(in.words)-1]; len(in.words) > 1 && !isDigit(last.text[0]) {
		if zone, named = last.text, last; !calendar.InForce().Has(zone) {
			return Moment{}, in.wrong(last.offset, unknownZone(zone))
		}
		in.words = in.words[:len(in.words)-1]
	}
	days := in.words[0].text
	if zone == "" && (!walls || !isDigit(days[0])) {
		if _, _, err := in.wall(r.Now); err != nil {
			return Moment{}, err
		}
		return Moment{}, in.wrong(len(in.text), "name the zone, as in: "+strings.TrimSpace(in.text)+" Europe/Berlin")
	}
	shown, offset, err := in.wall(in.today(r.Now, zone))
	if err != nil {
		return Moment{}, err
	}
	if walls && named.text == "" {
		return Moment{Wall: shown.Format("2006-01-02T15:04:05")}, nil
	}
	at, detail := Resolve(shown, zone)
	if detail != "" {
		return Moment{}, in.wrong(offset, detail)
	}
	return Moment{At: at}, nil
}

// today returns the current time in a zone, or in UTC if zone is empty. Then the input names an absolute date, so the zone does not matter.
func (in *input) today(now time.Time, zone string) time.Time {
	if location := calendar.InForce().Location(zone); location != nil {
		return now.In(location)
	}
	return now.UTC()
}

// Resolve returns the instant at which the clock of a zone shows a wall time; it ignores the zone of shown. If there is none, or if there
// are two, detail says so, and what to write instead.
func Resolve(shown time.Time, zone string) (at time.Time, detail string) {
	timing, err := calendar.Compile(calendar.Spec{Timezone: zone, At: calendar.StringList{"2000-01-01T00:00:00"}}, calendar.Context{})
	if err != nil {
		return time.Time{}, unknownZone(zone)
	}
	instants, skipped, until := timing.Shown(shown)
	on := shown.Format("15:04:05 on 2 January 2006")
	if shown.Second() == 0 {
		on = shown.Format("15:04 on 2 January 2006")
	}
	switch len(instants) {
	case 0:
		after := wallOf(timing.Local(until))
		before, form := after.Add(-skipped), "15:04"
		if before.Day() != after.Day() {
			form = "15:04 on 2 January"
		}
		return time.Time{}, fmt.Sprintf("%s does not exist in %s: the clock goes from %s to %s", on, zone, before.Format(form), after.Format(form))
	case 1:
		return instants[0], ""
	}
	return time.Time{}, fmt.Sprintf("%s comes twice in %s: write %s or %s", on, zone,
		timing.Local(instants[0]).Format(time.RFC3339), timing.Local(instants[1]).Format(time.RFC3339))
}

// wallOf returns what the clock shows at a time, as a time in UTC.
func wallOf(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// unknownZone says that a name is no zone, and names the one that may be meant.
func unknownZone(name string) string {
	detail := fmt.Sprintf("%q is not a time zone", name)
	meant := strings.ToLower(strings.ReplaceAll(name, " ", "_"))
	for _, zone := range calendar.InForce().Names() {
		lower := strings.ToLower(zone)
		if lower == meant || strings.HasSuffix(lower, "/"+meant) {
			return detail + ": is it " + zone + "?"
		}
	}
	return detail + ", such as Europe/Berlin"
}
