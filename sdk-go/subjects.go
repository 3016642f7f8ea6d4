package carillon

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Subjects are the people or things that schedules are for, with their zones and quiet hours.
type Subjects struct{ c *Client }

// QuietHours is a time in which a subject gets no ticks. It begins at From and ends before To, which are wall times in the subject's zone
// such as "22:00". A To of "24:00" is the end of the day.
type QuietHours struct {
	From string `json:"from"`
	To   string `json:"to"`
	Then string `json:"then,omitempty"` // defer (default): the last tick inside fires at the end; skip: none fires
	Days string `json:"days,omitempty"` // the days of the week on which it begins, in cron's syntax ("1-5"); empty: every day
}

// QuietWindows are the quiet hours of a subject, up to 16 windows. The server answers one window as an object, and several as a list.
type QuietWindows []QuietHours

// UnmarshalJSON reads a window or a list of windows.
func (q *QuietWindows) UnmarshalJSON(b []byte) error {
	var one QuietHours
	if len(b) > 0 && b[0] == '{' {
		err := json.Unmarshal(b, &one)
		*q = QuietWindows{one}
		return err
	}
	return json.Unmarshal(b, (*[]QuietHours)(q))
}

// SubjectParams define the profile of a subject. Schedules with the time zone "@subject" follow it.
type SubjectParams struct {
	Timezone   string            `json:"timezone"`
	QuietHours QuietWindows      `json:"quiet_hours,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`

	IfMatch int64 `json:"-"` // if not zero, the version that must be the stored one
}

// Subject is the stored profile of a subject, over all workflows.
type Subject struct {
	Subject    string            `json:"subject"`
	Timezone   string            `json:"timezone"`
	QuietHours QuietWindows      `json:"quiet_hours"`
	Labels     map[string]string `json:"labels"`
	Version    int64             `json:"version"`
	CreatedAt  time.Time         `json:"created_at"`
	UpdatedAt  time.Time         `json:"updated_at"`
	UpdatedBy  string            `json:"updated_by"`
}

// SubjectRetiming is the stored profile of a subject. Operation is not nil if more than 500 schedules follow the profile: it retimes
// them after the answer, and [Operations.Get] returns its progress.
type SubjectRetiming struct {
	Subject
	Operation *Operation `json:"operation"`
}

// Erasure is the receipt of a subject's erasure. SubjectHash does not reveal the subject, and is the same for the same subject.
type Erasure struct {
	SubjectHash string        `json:"subject_hash"`
	ErasedAt    time.Time     `json:"erased_at"`
	ErasedBy    string        `json:"erased_by"`
	Counts      ErasureCounts `json:"counts"`
}

// ErasureCounts counts what was stored of an erased subject.
type ErasureCounts struct {
	Profiles  int   `json:"profiles"`
	Schedules int   `json:"schedules"`
	Revisions int   `json:"revisions"`
	Ticks     int64 `json:"ticks"`
	Attempts  int64 `json:"attempts"`
	Answers   int64 `json:"answers"`
}

// SubjectOverview is what a subject has, had and will get. It is bounded: 200 schedules, 50 coming ticks and 50 recent ones.
type SubjectOverview struct {
	Subject         string            `json:"subject"`
	Profile         *Subject          `json:"profile"`           // nil: it has none
	TimezoneInForce string            `json:"timezone_in_force"` // the zone of schedules that follow the subject; empty: there is none
	Schedules       []ScheduleSummary `json:"schedules"`
	More            bool              `json:"more"` // the subject has more schedules
	Upcoming        []SubjectTick     `json:"upcoming"`
	Recent          []TickRecord      `json:"recent"` // newest first
}

// SubjectTick is a coming tick of a subject.
type SubjectTick struct {
	Timestamp time.Time `json:"timestamp"`  // nominal
	LocalTime time.Time `json:"local_time"` // the same instant with the offset of the schedule's zone
	Workflow  string    `json:"workflow"`
	Key       string    `json:"key"`
}

// SubjectDay is what a subject got on a day of its zone, with a verdict for each workflow.
type SubjectDay struct {
	Subject   string           `json:"subject"`
	On        string           `json:"on"` // "2027-01-01"
	Timezone  string           `json:"timezone"`
	Workflows []SubjectVerdict `json:"workflows"`
	More      bool             `json:"more"` // there are schedules or ticks beyond these verdicts
}

// SubjectVerdict is what became of a subject's ticks of a workflow on a day.
type SubjectVerdict struct {
	Workflow string        `json:"workflow"`
	Verdict  string        `json:"verdict"` // "sent", "late", "failed", "skipped", "missed", "held", "paused", "unknown", "nothing_due" or "no_schedule"
	Detail   string        `json:"detail"`  // for a person
	Planned  []PlannedTick `json:"planned"`
}

// PlannedTick is a tick of a day.
type PlannedTick struct {
	Timestamp time.Time `json:"timestamp"`  // nominal
	LocalTime time.Time `json:"local_time"` // the same instant with the offset of the schedule's zone
	Outcome   string    `json:"outcome"`    // as in Explanation
	TickID    string    `json:"tick_id,omitempty"`
}

// CancelParams select the schedules of a subject to cancel; the zero value selects all.
type CancelParams struct {
	Workflow string `json:"workflow,omitempty"`
	Label    string `json:"label,omitempty"` // "name:value"

	IdempotencyKey string `json:"-"` // empty: a random one for each call
}

// Cancelled is what a cancel did, or the operation that does it, if more than 1,000 schedules or ticks are to be cancelled.
type Cancelled struct {
	Schedules int64      `json:"schedules"` // that were deleted
	Ticks     int64      `json:"ticks"`     // that were cancelled or told to stop
	Operation *Operation `json:"operation"` // not nil: the counts come with its end
}

// RenameParams are the options of Rename.
type RenameParams struct {
	To string `json:"to"`

	IdempotencyKey string `json:"-"` // empty: a random one for each call
}

// Renamed is the result of Rename.
type Renamed struct {
	Subject   string `json:"subject"`   // the new name
	Schedules int64  `json:"schedules"` // how many were renamed
	Profile   bool   `json:"profile"`   // a profile was renamed
}

// Put stores the profile of a subject, and retimes the schedules that follow it, or begins the operation that retimes them.
func (s Subjects) Put(ctx context.Context, subject string, p SubjectParams) (SubjectRetiming, error) {
	return change[SubjectRetiming](ctx, s.c, http.MethodPut, path("subjects", subject), p, ifMatch(p.IfMatch))
}

// Get returns the profile of a subject.
func (s Subjects) Get(ctx context.Context, subject string) (Subject, error) {
	return get[Subject](ctx, s.c, path("subjects", subject), nil)
}

// List iterates over the profiles of the subjects that begin with a prefix. An error comes once and ends the loop.
func (s Subjects) List(ctx context.Context, prefix string) iter.Seq2[Subject, error] {
	q := query{}
	q.text("subject_prefix", prefix)
	return pages[Subject](ctx, s.c, path("subjects"), url.Values(q))
}

// Overview returns what a subject has, had and will get.
func (s Subjects) Overview(ctx context.Context, subject string) (SubjectOverview, error) {
	return get[SubjectOverview](ctx, s.c, path("subjects", subject, "overview"), nil)
}

// Explain returns what a subject got on a day of its zone, such as "2027-01-01", and why.
func (s Subjects) Explain(ctx context.Context, subject, on string) (SubjectDay, error) {
	q := query{}
	q.text("on", on)
	return get[SubjectDay](ctx, s.c, path("subjects", subject, "explain"), q)
}

// Cancel deletes the schedules of a subject and cancels its ticks that have not ended. Profile and history stay.
func (s Subjects) Cancel(ctx context.Context, subject string, p CancelParams) (Cancelled, error) {
	return post[Cancelled](ctx, s.c, path("subjects", subject, "cancel"), p, p.IdempotencyKey)
}

// Erase erases everything that is stored of a subject in all workflows, with its history. It cannot be undone. The token needs the scope
// subjects:erase. If p has an IfMatch, the profile must have that version.
func (s Subjects) Erase(ctx context.Context, subject string, p ...DeleteParams) (Erasure, error) {
	r := &call{method: http.MethodDelete, path: path("subjects", subject)}
	for _, one := range p {
		r.header = ifMatch(one.IfMatch)
	}
	return read[Erasure](ctx, s.c, r)
}

// Rename renames a subject: its schedules in all workflows, their history and its profile. Keys and times stay. It returns
// ErrConflict if the new name has a profile or schedules already.
func (s Subjects) Rename(ctx context.Context, subject string, p RenameParams) (Renamed, error) {
	return post[Renamed](ctx, s.c, path("subjects", subject, "rename"), p, p.IdempotencyKey)
}
