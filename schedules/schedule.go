package schedules

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Params are the body of an upsert. An absent member gets its default, except status and note, which stay as they are.
type Params struct {
	Spec     calendar.Spec     `json:"spec"`
	Policy   *policy.Policy    `json:"policy,omitempty"`
	Delivery *policy.Delivery  `json:"delivery,omitempty"`
	Subject  string            `json:"subject,omitempty"` // "": the key
	Payload  web.Raw           `json:"payload,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Note     *string           `json:"note,omitempty" null:"yes"`
	Status   string            `json:"status,omitempty"`

	Noteless bool `json:"-"` // note was sent as null: there is to be none
}

// Core is a schedule as clients see it, without its payload and its note: its definition, whole, and what became of it.
type Core struct {
	ID              string             `json:"id"`
	Workflow        string             `json:"workflow"`
	Key             string             `json:"key"`
	Subject         string             `json:"subject"`
	Version         int32              `json:"version"`
	Status          string             `json:"status"`
	Spec            calendar.Spec      `json:"spec"`
	Policy          policy.Policy      `json:"policy"`
	Delivery        policy.Delivery    `json:"delivery"`
	Labels          map[string]string  `json:"labels"`
	StatusNote      *string            `json:"status_note,omitempty"`
	PausedUntil     *time.Time         `json:"paused_until,omitempty"`
	PausedBy        *string            `json:"paused_by,omitempty"` // pausedBySync, or nil
	Reading         string             `json:"reading"`             // the spec in English; empty where it cannot be computed
	TimezoneInForce string             `json:"timezone_in_force"`   // the zone that it is timed in: of its subject, if it follows that
	NextAt          *time.Time         `json:"next_at"`
	NextLocal       *string            `json:"next_local"` // NextAt in that zone
	Upcoming        []time.Time        `json:"upcoming"`
	LastAt          *time.Time         `json:"last_at"`
	LastTickID      *string            `json:"last_tick_id"`
	Stats           Stats              `json:"stats"`
	Inherited       []string           `json:"inherited"`
	Warnings        []calendar.Warning `json:"warnings"`
	TZData          string             `json:"tzdata"`
	CreatedAt       time.Time          `json:"created_at"`
	UpdatedAt       time.Time          `json:"updated_at"`
	UpdatedBy       string             `json:"updated_by"`
}

// Schedule is a schedule as clients see it, whole.
type Schedule struct {
	Core
	Payload web.Raw `json:"payload"`
	Note    *string `json:"note"`
}

// LongRaws returns the values that may be long. A list writes them unchanged.
func (s *Schedule) LongRaws() []*web.Raw { return []*web.Raw{&s.Payload} }

// Stats count the ticks of a schedule by what became of them.
type Stats struct {
	Fired     int64 `json:"fired"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Skipped   int64 `json:"skipped"`
	Missed    int64 `json:"missed"`
}

const (
	upcomingShown = 5
	mostLabels    = 64
	longestNote   = 1000
	longestLabel  = 256
)

// definition is what a client wrote, checked, as it is stored.
type definition struct {
	spec     calendar.Spec
	specText string
	terms    policy.Stored
	subject  string // empty: the key
	payload  *string
	labels   map[string]string
	note     noteChange
	almanac  *cohorts.CalendarSet
	status   string // empty: as it is
	profile  cohorts.Profile
}

// noteChange is the note that a definition sets, or removes. The zero value leaves the note as it is.
type noteChange struct {
	text    *string
	removed bool
}

// read checks the parts of a definition that need no clock: all but the spec. Faults of all of them are joined.
func (p Params) read(q tenants.Quotas) (d definition, err error) {
	text, err := json.Marshal(p.Spec)
	if err != nil {
		return d, fmt.Errorf("write spec: %w", err)
	}
	return p.readAs(string(text), q)
}

// readAs is read where the text of the spec is known.
func (p Params) readAs(text string, q tenants.Quotas) (d definition, err error) {
	var errs []error
	d = definition{spec: p.Spec, specText: text, subject: p.Subject, labels: p.Labels, note: noteChange{p.Note, p.Noteless}, status: p.Status}
	if d.labels == nil {
		d.labels = map[string]string{}
	}
	if p.Payload != nil && string(p.Payload) != "null" {
		d.payload = new(string(p.Payload))
	}
	if len(text) > q.SpecBytes {
		return d, specTooLarge(len(text), q)
	}
	if len(p.Payload) > q.PayloadBytes {
		return d, tenants.TooLarge("/payload", "payload_bytes", q.PayloadBytes, len(p.Payload))
	}
	d.terms, err = policy.ReadTerms("", p.Policy, p.Delivery)
	errs = append(errs, err, d.terms.Keepable("", q), CheckLabels(p.Labels))
	if p.Subject != "" {
		errs = append(errs, policy.CheckSubject("/subject", p.Subject))
	}
	if p.Note != nil && len(*p.Note) > longestNote {
		errs = append(errs, fault.Invalid("/note", "a note has at most %d bytes", longestNote))
	}
	if p.Status != "" && p.Status != policy.Active && p.Status != policy.Paused {
		errs = append(errs, fault.Invalid("/status", "%q is neither active nor paused", p.Status))
	}
	return d, fault.Join(errs...)
}

func specTooLarge(bytes int, q tenants.Quotas) *fault.Error {
	return tenants.TooLarge("/spec", "spec_bytes", q.SpecBytes, bytes)
}

// CheckLabels returns the faults of labels, each located below /labels.
func CheckLabels(labels map[string]string) error {
	if len(labels) > mostLabels {
		return fault.Invalid("/labels", "%d labels are more than %d", len(labels), mostLabels)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := labels[name]
		if !policy.ValidName(name) {
			errs = append(errs, fault.Invalid("/labels/"+web.Pointer(name), "a label's name is 1 to 128 of A-Z a-z 0-9 . _ -"))
		}
		if len(value) > longestLabel {
			errs = append(errs, fault.Invalid("/labels/"+web.Pointer(name), "a label's value has at most 256 bytes"))
		}
	}
	return fault.Join(errs...)
}

// wholeSecond rounds a time up to a whole second.
func wholeSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); whole.Equal(t) {
		return whole.UTC()
	}
	return t.Truncate(time.Second).Add(time.Second).UTC()
}

// subjectFor returns the subject of a definition as the row of a schedule stores it: nil if it is the key.
func (d *definition) subjectFor(key string) *string {
	if d.subject == "" || d.subject == key {
		return nil
	}
	return &d.subject
}

// follow puts the profile of its subject into a definition that follows it.
func (d *definition) follow(ctx context.Context, db postgres.DB, of policy.Name) error {
	if !cohorts.FollowsSubject(d.spec) {
		return nil
	}
	follower := cohorts.Follower{Workflow: of.Workflow, Subject: cmp.Or(d.subject, of.Key)}
	found, err := cohorts.ReadProfiles(ctx, db, of.Tenant, follower)
	d.profile = found[follower]
	return err
}

// consult reads the present calendars that the spec of a definition names.
func (d *definition) consult(ctx context.Context, db postgres.DB, ts *cohorts.Timings, tenant tenants.ID) (err error) {
	d.almanac, err = ts.CalendarsNow(ctx, db, tenant, cohorts.CalendarsOf(d.spec))
	return err
}

// consultHeld is consult that also keeps the calendars unchanged until the transaction ends, so that none is deleted before the schedule
// that names it is stored.
func (d *definition) consultHeld(ctx context.Context, tx pgx.Tx, ts *cohorts.Timings, tenant tenants.ID) (err error) {
	d.almanac, err = ts.HoldCalendars(ctx, tx, tenant, cohorts.CalendarsOf(d.spec))
	return err
}

// held is how many bytes a definition stores.
func (d *definition) held() int {
	if d.payload == nil {
		return len(d.specText)
	}
	return len(d.specText) + len(*d.payload)
}
