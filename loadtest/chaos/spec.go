package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// definition is the body of a schedule that a client writes.
type definition struct {
	timing  timing
	jitter  int // seconds
	overlap string
	missed  string
	payload string
}

// zones are the zones of minutely and daily crons. Rules use only zones without clock changes.
var zones = []string{
	"UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Chatham", "America/St_Johns", "Africa/Cairo",
}

var steadyZones = []string{"UTC", "Asia/Tokyo", "Asia/Kolkata", "Africa/Lagos"}

// zone loads one of zones.
func zone(name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil {
		panic(err) // zone data is embedded
	}
	return z
}

// drawTiming draws a timing with a time soon after now. A lasting timing does not end during the run, so that pauses and changes have an
// effect. often is the share of timings that fire many times a minute.
func drawTiming(r *rand.Rand, now time.Time, lasting bool, often float64) (t timing) {
	soon := now.UTC().Truncate(time.Second).Add(time.Duration(25+r.IntN(30)) * time.Second)
	busy := r.Float64() < often
	pick := r.IntN(22)
	if lasting {
		pick = r.IntN(17)
	}
	t.zone = time.UTC
	switch {
	case pick < 6:
		t.kind, t.every = aligned, int64([]int{1, 1, 2, 3, 5, 7, 10, 15, 30}[r.IntN(9)])
		t.offset = r.Int64N(t.every)
	case pick < 8:
		t.kind, t.every, t.anchor, t.start = anchored, int64(2+r.IntN(20)), soon, soon
	case pick < 11:
		t.kind, t.zone = secondly, zone(zones[r.IntN(len(zones))])
		for s := r.IntN(6); s < 60; s += 3 + r.IntN(15) {
			t.seconds = append(t.seconds, s)
		}
	case pick < 13:
		t.kind, t.zone, t.every = minutely, zone(zones[r.IntN(len(zones))]), int64(1+r.IntN(2))
	case pick < 15:
		t.kind, t.zone, t.every = ruled, zone(steadyZones[r.IntN(len(steadyZones))]), 1
		t.seconds = []int{r.IntN(20), 20 + r.IntN(20), 40 + r.IntN(20)}
		t.anchor = now.UTC().Truncate(time.Minute)
	case pick < 17:
		t.kind, t.every = delayed, int64(1+r.IntN(8))
	case pick < 18:
		t.kind, t.zone = daily, zone(zones[r.IntN(len(zones))])
		w := t.wall(soon.Add(time.Minute + time.Duration(r.IntN(60))*time.Second))
		t.hour, t.minute = w.Hour(), w.Minute()
	case pick < 20:
		t.kind = once
		for n := 1 + r.IntN(3); n > 0; n-- {
			soon = soon.Add(time.Duration(r.IntN(12)) * time.Second)
			if len(t.at) == 0 || soon.After(t.at[len(t.at)-1]) {
				t.at = append(t.at, soon)
			}
		}
	case pick < 21:
		t.kind, t.every, t.most = aligned, int64(1+r.IntN(4)), 3+r.IntN(10)
	default:
		t.kind, t.every, t.start = aligned, int64(1+r.IntN(4)), soon
		t.end = soon.Add(time.Duration(r.IntN(60)) * time.Second)
	}
	if !busy {
		t.thin(r)
	}
	if pick < 15 && r.IntN(4) == 0 {
		t.out = drawExclusion(r, now, t.kind != minutely)
	}
	return t
}

// thin makes a timing that fires many times a minute fire once or twice.
func (t *timing) thin(r *rand.Rand) {
	switch t.kind {
	case aligned:
		if t.most == 0 && t.end.IsZero() {
			t.every = int64(30 + 30*r.IntN(2))
			t.offset = (30 + r.Int64N(30)) % t.every // so that an exclusion of seconds does not exclude all of it
		}
	case anchored, delayed:
		t.every = int64(41 + r.IntN(12))
	case secondly, ruled:
		t.seconds = []int{30 + r.IntN(30)}
	}
}

// drawExclusion draws days near now, some seconds of each minute, or the tenant's calendar.
func drawExclusion(r *rand.Rand, now time.Time, seconds bool) (e exclusion) {
	switch pick := r.IntN(3); {
	case pick == 0:
		e.dates = day(now, 1) + day(now, 3)
	case pick == 1 && seconds:
		e.below = 5 + r.IntN(20)
	default:
		e.named = true
	}
	return e
}

// day returns the UTC date so many days after now, with a space after it.
func day(now time.Time, after int) string {
	return now.UTC().AddDate(0, 0, after).Format(time.DateOnly) + " "
}

// draw draws a definition.
func draw(r *rand.Rand, now time.Time, lasting bool, often float64, payload string) definition {
	d := definition{
		timing:  drawTiming(r, now, lasting, often),
		overlap: []string{"skip", "allow_all", "allow_all", "buffer_one", "buffer_all", "cancel_other"}[r.IntN(6)],
		missed:  []string{"last", "last", "all", "none"}[r.IntN(4)],
		payload: payload,
	}
	if r.IntN(6) == 0 && d.timing.kind != once && d.timing.kind != delayed {
		d.jitter = 1 + r.IntN(5)
	}
	return d
}

// spec returns the timing as JSON for the API.
func (d definition) spec() string {
	t, b := d.timing, &strings.Builder{}
	fmt.Fprintf(b, `{"timezone":%q`, t.zone.String())
	switch t.kind {
	case aligned:
		fmt.Fprintf(b, `,"intervals":[{"every":"%ds","offset":"%ds"}]`, t.every, t.offset)
	case anchored:
		fmt.Fprintf(b, `,"intervals":[{"every":"%ds","mode":"fixed_rate"}]`, t.every)
	case delayed:
		fmt.Fprintf(b, `,"intervals":[{"every":"%ds","mode":"fixed_delay"}]`, t.every)
	case secondly:
		fmt.Fprintf(b, `,"cron":"%s * * * * *"`, list(t.seconds))
	case minutely:
		fmt.Fprintf(b, `,"cron":"*/%d * * * *"`, t.every)
	case daily:
		fmt.Fprintf(b, `,"cron":"%d %d * * *"`, t.minute, t.hour)
	case ruled:
		fmt.Fprintf(b, `,"rrule":"DTSTART%s\nRRULE:FREQ=MINUTELY;INTERVAL=%d;BYSECOND=%s"`, t.dtstart(), t.every, list(t.seconds))
	case once:
		times := make([]string, len(t.at))
		for i, at := range t.at {
			times[i] = strconv.Quote(at.Format(time.RFC3339))
		}
		fmt.Fprintf(b, `,"at":[%s]`, strings.Join(times, ","))
	}
	if !t.start.IsZero() {
		fmt.Fprintf(b, `,"start_at":%q`, t.start.Format(time.RFC3339))
	}
	if !t.end.IsZero() {
		fmt.Fprintf(b, `,"end_at":%q`, t.end.Format(time.RFC3339))
	}
	if t.most > 0 {
		fmt.Fprintf(b, `,"max_ticks":%d`, t.most)
	}
	switch out := t.out; {
	case out.dates != "":
		fmt.Fprintf(b, `,"exclude":{"dates":%s}`, quoted(out.dates))
	case out.below > 0:
		fmt.Fprintf(b, `,"exclude":{"calendars":[{"second":"0-%d","minute":"*","hour":"*"}]}`, out.below-1)
	case out.named:
		fmt.Fprintf(b, `,"exclude":{"named":[%q]}`, calendarName)
	}
	if d.jitter > 0 {
		fmt.Fprintf(b, `,"jitter":"%ds"`, d.jitter)
	}
	return b.String() + "}"
}

func (t *timing) dtstart() string {
	local := t.wall(t.anchor).Format("20060102T150405")
	if t.zone == time.UTC || t.zone.String() == "UTC" {
		return ":" + local + "Z"
	}
	return ";TZID=" + t.zone.String() + ":" + local
}

// calendarName is the name of the tenant's calendar.
const calendarName = "holidays"

// quoted returns words as a JSON array.
func quoted(words string) string {
	text, _ := json.Marshal(strings.Fields(words)) // strings always have a JSON form
	return string(text)
}

func list(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

// body returns the body of an upsert; named adds workflow and key, for a line of bulk or sync.
func (d definition) body(named ...string) string {
	head := ""
	if len(named) == 2 {
		head = fmt.Sprintf(`"workflow":%q,"key":%q,`, named[0], named[1])
	}
	return fmt.Sprintf(`{%s"spec":%s,"policy":{"overlap":%q,"missed":%q},"delivery":{"timeout":"20s"},"payload":%s}`, head, d.spec(), d.overlap, d.missed, d.payload)
}
