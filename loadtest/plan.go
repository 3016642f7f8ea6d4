package main

import (
	"encoding/json"
	"fmt"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// planned is a schedule, with the ticks that the oracle expects of it.
type planned struct {
	workflow, key string
	params        carillon.Params
	payload       json.RawMessage
	zone          *time.Location
	version       int64       // after it is stored
	nominal       []time.Time // of the ticks that the run waits for
	later         []time.Time // the times after those, as far as a tick shows them
}

// shown is the number of coming times that a tick has.
const shown = 5

// upcoming returns the expected upcoming times of the i-th tick.
func (p *planned) upcoming(i int) []time.Time {
	coming := append(append([]time.Time(nil), p.nominal[i+1:]...), p.later...)
	return coming[:min(shown, len(coming))]
}

// slot is the place of exactly one tick.
type slot struct {
	workflow, key string
	unix          int64
}

func (p *planned) slot(i int) slot { return slot{p.workflow, p.key, p.nominal[i].Unix()} }

// planTicks returns the number of ticks of the plan.
func planTicks(plan []*planned) (n int) {
	for _, p := range plan {
		n += len(p.nominal)
	}
	return n
}

// zoneNames are zones with different offsets all year round, most of them not whole hours.
var zoneNames = []string{
	"Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Chatham", "America/New_York",
	"Europe/Berlin", "Pacific/Marquesas", "Asia/Tehran", "Australia/Eucla", "America/Los_Angeles", "Pacific/Kiritimati",
}

func zones() ([]*time.Location, error) {
	list := make([]*time.Location, len(zoneNames))
	for i, name := range zoneNames {
		zone, err := time.LoadLocation(name)
		if err != nil {
			return nil, err
		}
		list[i] = zone
	}
	return list, nil
}

// cronRules are crons in a zone that name the target, a whole minute: each day, each week and each hour.
func cronRules(target time.Time, zone *time.Location) []rule {
	at := wall(target, zone)
	minute := func(w time.Time) bool { return w.Minute() == at.Minute() }
	day := func(w time.Time) bool { return minute(w) && w.Hour() == at.Hour() }
	week := func(w time.Time) bool { return day(w) && w.Weekday() == at.Weekday() }
	return []rule{
		{cron: fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour()), named: day},
		{cron: fmt.Sprintf("%d %d * * %d", at.Minute(), at.Hour(), at.Weekday()), named: week},
		{cron: fmt.Sprintf("%d * * * *", at.Minute()), named: minute, everyHour: true},
	}
}

// everyFrom makes p an interval with ticks in [from, to]. Each of its times gets a tick: none waits for the one before, and none counts
// others as missed.
func (p *planned) everyFrom(every time.Duration, from, to time.Time) {
	p.params.Spec.Intervals = []carillon.Interval{{
		Every:  every.String(),
		Offset: (time.Duration(from.UnixNano()) % every).String(),
	}}
	p.params.Spec.StartAt = from.UTC().Format(time.RFC3339)
	p.params.Spec.EndAt = to.UTC().Format(time.RFC3339)
	p.params.Policy = carillon.Policy{Overlap: "allow_all", Missed: "all"}
	for t := from; !t.After(to); t = t.Add(every) {
		p.nominal = append(p.nominal, t)
	}
}

// payloadOf returns a payload that changes unless it is copied byte for byte: a number beyond 2^53, spaces, and an escape.
func payloadOf(i int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"n": %d, "big": 9007199254740993%04d, "text": "caf\u00e9 <&>"}`, i, i%10_000))
}
