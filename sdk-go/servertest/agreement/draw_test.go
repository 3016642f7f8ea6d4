package agreement

import (
	"fmt"
	"math/rand/v2"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// zones have changes of the clock of all kinds: by an hour, by half an hour and by two, at midnight, and of negative DST.
var zones = []string{
	"America/New_York", "Europe/Berlin", "Europe/Dublin", "Australia/Lord_Howe", "America/Santiago", "Australia/Sydney", "Antarctica/Troll",
	"America/Havana", "Africa/Cairo", "Africa/Casablanca", "Pacific/Auckland", "America/St_Johns",
}

// dice are the random numbers of one schedule, or those that all schedules of a world share.
type dice struct{ *rand.Rand }

func (d dice) between(least, most int) int { return least + d.IntN(most-least+1) }

func (d dice) oneIn(n int) bool { return d.IntN(n) == 0 }

func (d dice) minutes(least, most int) time.Duration {
	return time.Duration(d.between(least, most)) * time.Minute
}

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

// drawWeekend draws a change of the clock in some zone, in one of ten years. They are far ahead, because history hides ticks by the real clock.
func drawWeekend(d dice) (change time.Time, zone string) {
	zone = pick(d, zones...)
	day := time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, d.IntN(3650))
	_, change = day.In(location(zone)).ZoneBounds()
	return change, zone
}

func location(zone string) *time.Location {
	at, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	return at
}

// drawSpec draws a spec that has ticks around a change of the clock in a zone.
func drawSpec(d dice, now, change time.Time, zone string) (s carillon.Spec) {
	if d.oneIn(3) {
		zone = pick(d, zones...)
	}
	s.Timezone = zone
	if d.oneIn(4) {
		s.Timezone = "@subject"
	}
	day := change.In(location(zone))
	hour, minute := d.between(0, 4), pick(d, 0, 15, 30, 45)
	drawTimes(d, &s, now, day, zone, hour, minute)
	fixedDelay := len(s.Intervals) > 0 && s.Intervals[0].Mode == "fixed_delay"
	if d.oneIn(5) && !fixedDelay {
		s.Exclude = &carillon.Exclude{Then: pick(d, "", "drop", "next", "previous")}
		if d.oneIn(2) {
			s.Exclude.Named = []string{"holidays"}
		} else {
			s.Exclude.Dates = []string{day.Format(time.DateOnly)}
		}
	}
	if d.oneIn(4) && !fixedDelay {
		s.DST.Gap = pick(d, "skip", "next_valid", "shift_forward")
	}
	if d.oneIn(4) && !fixedDelay {
		s.DST.Overlap = pick(d, "first", "last", "both")
	}
	if d.oneIn(6) {
		s.StartAt = day.Add(-time.Duration(d.between(1, 20)) * time.Hour).Format("2006-01-02T15:04:05")
	}
	if d.oneIn(8) {
		s.EndAt = day.Add(time.Duration(d.between(1, 20)) * time.Hour).Format("2006-01-02T15:04:05")
	}
	if d.oneIn(6) {
		s.MaxTicks = d.between(1, 6)
	}
	if d.oneIn(6) {
		s.Jitter = pick(d, "30s", "5m", "20m")
	}
	return s
}

// drawTimes draws the times of a spec.
func drawTimes(d dice, s *carillon.Spec, now, day time.Time, zone string, hour, minute int) {
	wall := func(of time.Time) string { return of.Format("2006-01-02") + fmt.Sprintf("T%02d:%02d:00", hour, minute) }
	switch d.between(0, 11) {
	case 0, 1:
		s.Cron = []string{fmt.Sprintf("%d %d * * *", minute, hour)}
	case 2:
		s.Cron = []string{fmt.Sprintf("%d * * * *", minute)}
	case 3:
		s.Cron = []string{pick(d, "*/15 * * * *", "*/20 1-3 * * *", "0 8 * * 1-5", "H H * * *", "H/30 * * * *", "30 10,40 * * * *", "0 0 * * SUN", "30 2 L * *", "@hourly", "@daily")}
	case 4:
		s.Calendars = []carillon.CalendarFields{{Hour: fmt.Sprint(hour), Minute: fmt.Sprint(minute)}, {Hour: "12", DayOfWeek: "6,0"}}
	case 5:
		s.Intervals = []carillon.Interval{{Every: pick(d, "30m", "1h", "90m", "1d"), First: pick(d, "", "now")}}
	case 6:
		s.Intervals = []carillon.Interval{{Every: pick(d, "45m", "1h", "7h", "1d"), Mode: "fixed_rate", First: pick(d, "", "now")}}
	case 7:
		s.Intervals = []carillon.Interval{{Every: pick(d, "50m", "2h"), Mode: "fixed_delay", First: pick(d, "", "now")}}
	case 8:
		start := day.AddDate(0, 0, -d.between(0, 3))
		s.RRule = fmt.Sprintf("DTSTART:%sT%02d%02d00\nRRULE:FREQ=%s", start.Format("20060102"), hour, minute, pick(d, "DAILY", "HOURLY", "HOURLY;INTERVAL=2", "WEEKLY;BYDAY=SU,MO"))
	case 9:
		s.At = []string{wall(day), wall(day.AddDate(0, 0, 1)), day.UTC().Add(90 * time.Minute).Format(time.RFC3339)}
	case 10:
		s.Relative = []carillon.Relative{{To: now.UTC().Truncate(time.Second).Format(time.RFC3339), Days: new(d.between(1, 2)), At: fmt.Sprintf("%02d:%02d", hour, minute)}, {To: wall(day), Offset: pick(d, "-2h", "90m")}}
	case 11:
		s.Cron = []string{fmt.Sprintf("%d %d * * *", minute, hour), "0 */6 * * *"}
		s.Intervals = []carillon.Interval{{Every: "5h"}}
	}
}

func drawPolicy(d dice) carillon.Policy {
	p := carillon.Policy{
		Overlap: pick(d, "", "allow_all", "allow_all", "skip", "buffer_one", "buffer_all", "cancel_other"),
		Missed:  pick(d, "", "last", "all", "all", "none"),
	}
	if p.Overlap == "cancel_other" && p.Missed == "all" {
		p.Missed = "last" // of many ticks at once, the order of two transactions decides which of them begin and are cancelled
	}
	if d.oneIn(3) {
		p.MaxLateness, p.OnExpired = pick(d, "30m", "2h"), pick(d, "", "skip", "deliver")
	}
	if d.oneIn(6) {
		p.PauseAfterFailures = new(d.between(1, 2))
	}
	return p
}

func drawProfile(d dice, zone string) carillon.SubjectParams {
	p := carillon.SubjectParams{Timezone: zone}
	if d.oneIn(2) {
		p.Timezone = pick(d, zones...)
	}
	if d.oneIn(2) {
		p.QuietHours = carillon.QuietWindows{{From: pick(d, "22:00", "01:00", "02:30"), To: pick(d, "03:30", "07:00"), Then: pick(d, "", "defer", "skip")}}
	}
	return p
}
