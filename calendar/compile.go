package calendar

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of a spec.
const (
	maxMembers  = 64 // in a list
	maxAt       = 1000
	maxDates    = 1000
	maxComment  = 200 // characters
	maxMaxTicks = 100_000
)

// Context has the inputs of Compile beside the spec.
type Context struct {
	Zones        *Zones                           // nil: InForce()
	Created      time.Time                        // the anchor of fixed_rate without start_at, rounded up to a whole second
	Identity     string                           // the schedule's identity, which H hashes
	Named        func(name string) ([]Date, bool) // named exclusion calendars; nil: there are none
	SubjectZone  string                           // the zone of @subject; "": @subject is a fault
	SubjectQuiet Quiet                            // the quiet hours of a spec with the zone @subject
}

func (c Context) zones() *Zones {
	if c.Zones != nil {
		return c.Zones
	}
	return InForce()
}

// compiler compiles one spec into a plan.
type compiler struct {
	Context
	spec    Spec
	plan    plan
	zone    *zone
	faults  Faults
	gap     string
	overlap string
	anchor  int64 // of fixed_rate
	first   firstTick
	notes   []Warning
}

// Compile checks a spec and returns its timing. The error is of type Faults and has all faults of the spec. A spec that never fires is
// valid; Next reports it.
func Compile(spec Spec, c Context) (*Timing, error) {
	k := &compiler{Context: c, spec: spec}
	k.readZone()
	k.readDST()
	k.readBounds()
	k.readCron()
	k.readCalendars()
	k.readIntervals()
	k.readRule()
	k.readAt()
	k.readRelative()
	k.readExclude()
	k.readRest()
	if err := k.faults.err(); err != nil {
		return nil, err
	}
	k.plan.order()
	t, faults := k.plan.build(c)
	if len(faults) > 0 {
		return nil, faults
	}
	t.first, t.notes = k.first, k.notes
	return t, nil
}

func (k *compiler) readZone() {
	name := k.spec.Timezone
	switch name {
	case "":
		name = "UTC"
	case "@subject":
		name = k.SubjectZone
		if name == "" {
			k.faults.add("/timezone", "no_subject_zone", "the subject has no profile that names its time zone, and there is no fallback_timezone of the workflow or of the tenant")
			name = "UTC"
		}
		k.plan.Quiet = k.SubjectQuiet.canonical()
	}
	k.zone = k.zones().zone(name)
	if k.zone == nil {
		k.faults.add("/timezone", "unknown_timezone", "%s", unknownZone(k.zones(), name))
		k.zone = k.zones().zone("Etc/UTC")
	}
	k.plan.Zone = name
}

func unknownZone(z *Zones, name string) string {
	if len(name) > 64 {
		return "not a time zone of the IANA database"
	}
	if slices.Contains(notZones, name) {
		return fmt.Sprintf("%q is an abbreviation, not a place such as Europe/Berlin", name)
	}
	for _, n := range z.Names() {
		if strings.EqualFold(n, strings.ReplaceAll(name, " ", "_")) {
			return fmt.Sprintf("%q is not a time zone; did you mean %q?", name, n)
		}
	}
	return fmt.Sprintf("%q is not a time zone of the IANA database", name)
}

func (k *compiler) readDST() {
	k.gap, k.overlap = k.spec.DST.Gap, k.spec.DST.Overlap
	if !slices.Contains([]string{"", "auto", "skip", "next_valid", "shift_forward"}, k.gap) {
		k.faults.add("/dst/gap", "unknown_value", "gap is auto, skip, next_valid or shift_forward, not %q", k.gap)
	}
	if !slices.Contains([]string{"", "auto", "first", "last", "both"}, k.overlap) {
		k.faults.add("/dst/overlap", "unknown_value", "overlap is auto, first, last or both, not %q", k.overlap)
	}
}

// policy returns the DST policies for members of a class.
func (k *compiler) policy(class Class) policies {
	p := policies{gapShiftForward, overlapFirst}
	if class == ClassEveryHour {
		p = policies{gapSkip, overlapBoth}
	}
	switch k.gap {
	case "skip":
		p.Gap = gapSkip
	case "next_valid":
		p.Gap = gapNextValid
	case "shift_forward":
		p.Gap = gapShiftForward
	}
	switch k.overlap {
	case "first":
		p.Overlap = overlapFirst
	case "last":
		p.Overlap = overlapLast
	case "both":
		p.Overlap = overlapBoth
	}
	return p
}

func (k *compiler) readBounds() {
	read := func(pointer string, text *string) *int64 {
		if text == nil {
			return nil
		}
		at, ok := k.moment(pointer, *text)
		if !ok {
			return nil
		}
		return &at
	}
	k.plan.Start = read("/start_at", k.spec.StartAt)
	k.plan.End = read("/end_at", k.spec.EndAt)
	if k.plan.Start != nil && k.plan.End != nil && *k.plan.End < *k.plan.Start {
		k.faults.add("/end_at", "end_before_start", "end_at is before start_at")
	}
	k.anchor = roundUp(k.Created)
	if k.plan.Start != nil {
		k.anchor = *k.plan.Start
	}
}

// moment parses an instant, or a wall time in the spec's zone. A wall time in a gap moves forward; in an overlap it is the first one.
func (k *compiler) moment(pointer, text string) (int64, bool) {
	at, isWall, ok := k.time(pointer, text)
	if !ok || !isWall {
		return at, ok
	}
	return k.zone.instant(at), true
}

// time parses an instant or a wall time, and returns its Unix seconds.
func (k *compiler) time(pointer, text string) (at int64, isWall, ok bool) {
	if len(text) > 40 {
		k.faults.add(pointer, "time_syntax", "not a time")
		return 0, false, false
	}
	t, err := parseInstant(text)
	if err != nil {
		isWall = true
		for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04"} {
			if t, err = time.Parse(layout, text); err == nil {
				break
			}
		}
	}
	switch {
	case err != nil:
		k.faults.add(pointer, "time_syntax", "%q is neither a wall time like 2026-12-24T18:00:00 nor an instant like 2026-12-24T18:00:00Z", text)
		return 0, false, false
	case t.Nanosecond() != 0 || strings.ContainsAny(text, ".,"):
		k.faults.add(pointer, "time_fraction", "%q is not a whole second", text)
		return 0, false, false
	case t.Year() < minYear || t.Unix() < 0:
		k.faults.add(pointer, "time_out_of_range", "%q is before %d", text, minYear)
		return 0, false, false
	}
	return t.Unix(), isWall, true
}

func (k *compiler) readCron() {
	if !slices.Contains([]string{"", "or", "and"}, k.spec.DayMatch) {
		k.faults.add("/day_match", "unknown_value", "day_match is or, or and, not %q", k.spec.DayMatch)
	}
	if len(k.spec.Cron) > maxMembers {
		k.faults.add("/cron", "too_many", "at most %d cron expressions", maxMembers)
		return
	}
	for i, text := range k.spec.Cron {
		pointer := fmt.Sprintf("/cron/%d", i)
		r, faults := parseCron(text, k.plan.Zone, k.Identity, k.spec.DayMatch == "and")
		k.faults.at(pointer, faults)
		if len(faults) > 0 {
			continue
		}
		if r.every > 0 {
			k.addRate(Interval{Mode: "fixed_rate"}, int64(r.every/time.Second), false)
			continue
		}
		k.noteDialect(text, r)
		k.addFields(r.fields)
	}
}

func (k *compiler) addFields(f fields) {
	k.plan.Fields = append(k.plan.Fields, fieldPlan{k.policy(fieldClass(f)), f})
}

func (k *compiler) readCalendars() {
	if len(k.spec.Calendars) > maxMembers {
		k.faults.add("/calendars", "too_many", "at most %d calendars", maxMembers)
		return
	}
	for i, c := range k.spec.Calendars {
		before := len(k.faults)
		f, _ := k.calendar(fmt.Sprintf("/calendars/%d", i), c)
		if len(k.faults) == before {
			k.addFields(f)
		}
	}
}

// calendar parses a calendar. wholeDays reports that the calendar has no times.
func (k *compiler) calendar(pointer string, c Calendar) (f fields, wholeDays bool) {
	read := func(d field, text, otherwise string) {
		if text == "" {
			text = otherwise
		}
		if len(text) > maxCron {
			k.faults.add(pointer+"/"+d.name, "too_long", "at most %d bytes", maxCron)
			return
		}
		var faults []Fault
		p := fieldText{field: d, text: text, identity: k.Identity, out: &f, faults: &faults}
		p.parse()
		k.faults.at(pointer+"/"+d.name, faults)
	}
	read(secondField, c.Second, "0")
	read(minuteField, c.Minute, "0")
	read(hourField, c.Hour, "0")
	read(domField, c.DayOfMonth, "*")
	read(monthField, c.Month, "*")
	read(weekdayField, c.DayOfWeek, "*")
	if c.Year == "" {
		f.Years = allYears
	} else {
		read(yearField, c.Year, "*")
	}
	if utf8.RuneCountInString(c.Comment) > maxComment {
		k.faults.add(pointer+"/comment", "too_long", "a comment has at most %d characters", maxComment)
	}
	return f.normal(), c.Second == "" && c.Minute == "" && c.Hour == ""
}

func (k *compiler) readAt() {
	if len(k.spec.At) > maxAt {
		k.faults.add("/at", "too_many", "at most %d times", maxAt)
		return
	}
	for i, text := range k.spec.At {
		pointer := fmt.Sprintf("/at/%d", i)
		at, isWall, ok := k.time(pointer, text)
		switch {
		case !ok:
		case at > maxWall:
			k.faults.add(pointer, "time_out_of_range", "%q is after %d, the last year that is computed", text, maxYear)
		case isWall:
			k.plan.Walls = append(k.plan.Walls, wallPlan{k.policy(ClassFixed), at})
		default:
			k.plan.Moments = append(k.plan.Moments, at)
		}
	}
}

func (k *compiler) readRest() {
	if m := k.spec.MaxTicks; m != nil && (*m < 1 || *m > maxMaxTicks) {
		k.faults.add("/max_ticks", "out_of_range", "max_ticks is from 1 to %d", maxMaxTicks)
	}
	if text := k.spec.Jitter; text != "" {
		d, _, err := parseDuration(text)
		switch {
		case err != nil:
			k.faults.add("/jitter", "duration_syntax", "%s", err)
		case d > 24*time.Hour:
			k.faults.add("/jitter", "out_of_range", "jitter is at most 24h")
		}
		k.plan.Jitter = int64(d / time.Second)
	}
	s := k.spec
	if len(s.Cron)+len(s.Calendars)+len(s.Intervals)+len(s.At)+len(s.Relative) == 0 && s.RRule == "" {
		k.faults.add("", "spec_empty", "a spec has at least one of cron, calendars, intervals, rrule, at and relative")
	}
}
