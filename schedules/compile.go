package schedules

import (
	"context"
	"strings"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// memo keeps compiled specs while many rows of one moment are read, because most specs are alike. A nil memo keeps nothing.
type memo struct {
	known map[source]compiled
	bytes int
}

// These bound a memo, which lives as long as a request.
const (
	mostMemo  = 10_000
	memoBytes = 8 << 20 // of timings
)

func newMemo() *memo { return &memo{known: map[source]compiled{}} }

type compiled struct {
	timing *calendar.Timing
	err    error
}

// source is everything that a timing is compiled from.
type source struct {
	spec, identity   string
	anchor, revision int64
	profile          cohorts.Profile
}

// compile compiles a spec and checks the timing, once for all definitions with the same source.
func (m *memo) compile(d definition, anchor time.Time, identity string, check func(*calendar.Timing) error) (*calendar.Timing, error) {
	if m == nil {
		return checked(d, anchor, identity, check)
	}
	key := source{spec: d.specText, anchor: anchor.Unix(), revision: d.almanac.At(), profile: d.profile}
	if hashes(d.spec) {
		key.identity = identity
	}
	known, ok := m.known[key]
	if !ok {
		known.timing, known.err = checked(d, anchor, identity, check)
		m.keep(key, known)
	}
	return known.timing, known.err
}

// keep keeps a compiled spec. If the memo is full, it first forgets all others.
func (m *memo) keep(key source, c compiled) {
	n := len(key.spec)
	if c.timing != nil {
		n += c.timing.Bytes()
	}
	if len(m.known) == mostMemo || m.bytes+n > memoBytes {
		clear(m.known)
		m.bytes = 0
	}
	m.known[key], m.bytes = c, m.bytes+n
}

// checked compiles a spec and checks the timing.
func checked(d definition, anchor time.Time, identity string, check func(*calendar.Timing) error) (*calendar.Timing, error) {
	t, err := cohorts.Compile(d.spec, d.almanac.In(d.profile.Context(anchor, identity)))
	if err != nil {
		return nil, err
	}
	return t, check(t)
}

// hashes reports whether a spec may have an H, so that its timing depends on the schedule.
func hashes(spec calendar.Spec) bool {
	for _, cron := range spec.Cron {
		if strings.ContainsAny(cron, "Hh") {
			return true
		}
	}
	return len(spec.Calendars) > 0 || spec.Exclude != nil && len(spec.Exclude.Calendars) > 0
}

// Reading checks many definitions of a tenant before they are stored. A spec that many share is compiled once.
type Reading struct {
	s         *Schedules
	tenant    tenants.ID
	memo      *memo
	anchor    time.Time
	calendars map[string]*cohorts.CalendarSet // by the names in a spec
}

// NewReading returns a reading that begins now.
func (s *Schedules) NewReading(tenant tenants.ID) *Reading {
	return &Reading{s: s, tenant: tenant, memo: newMemo(), anchor: wholeSecond(time.Now()), calendars: map[string]*cohorts.CalendarSet{}}
}

// Refresh forgets the calendars, which may be others by now.
func (r *Reading) Refresh() { clear(r.calendars) }

// Define checks a definition and puts it into the item of its workflow and key. spec is the text of p.Spec as it is stored.
func (r *Reading) Define(ctx context.Context, it *Item, p Params, spec string, q tenants.Quotas) error {
	d, err := p.readAs(spec, q)
	if names := cohorts.CalendarsOf(d.spec); len(names) > 0 {
		all := strings.Join(names, " ")
		if _, known := r.calendars[all]; !known {
			a, err := r.s.Timings.CalendarsNow(ctx, r.s.Pool, r.tenant, names)
			if err != nil {
				return err
			}
			r.calendars[all] = a
		}
		d.almanac = r.calendars[all]
	}
	it.definition = d
	if cohorts.FollowsSubject(d.spec) { // it is compiled once the profiles of the batch are known
		return err
	}
	_, specErr := r.memo.compile(d, r.anchor, cohorts.Identity(r.tenant, it.Workflow, it.Key), func(*calendar.Timing) error { return nil })
	return fault.Join(err, specErr)
}
