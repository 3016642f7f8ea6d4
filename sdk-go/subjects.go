package carillon

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// QuietHours is a time in which a subject gets no ticks: from From until before To, as wall times in its zone ("22:00"; a To of "24:00" is
// the end of the day).
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
// them after the answer, and [Client.Operation] returns its progress.
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

// PutSubject stores the profile of a subject, and retimes the schedules that follow it, or begins the operation that retimes them.
func (c *Client) PutSubject(ctx context.Context, subject string, p SubjectParams) (SubjectRetiming, error) {
	body, err := encode(p)
	if err != nil {
		return SubjectRetiming{}, err
	}
	return read[SubjectRetiming](ctx, c, &call{method: http.MethodPut, path: path("subjects", subject), body: body, header: ifMatch(p.IfMatch)})
}

// Subject returns the profile of a subject.
func (c *Client) Subject(ctx context.Context, subject string) (Subject, error) {
	return read[Subject](ctx, c, &call{method: http.MethodGet, path: path("subjects", subject)})
}

// Subjects iterates over the profiles of the subjects that begin with a prefix. An error comes once and ends the loop.
func (c *Client) Subjects(ctx context.Context, prefix string) iter.Seq2[Subject, error] {
	q := query{}
	q.text("subject_prefix", prefix)
	return pages[Subject](ctx, c, path("subjects"), url.Values(q))
}

// EraseSubject erases everything that is stored of a subject in all workflows, with its history. It cannot be undone. The token needs the scope
// subjects:erase. If p has an IfMatch, the profile must have that version.
func (c *Client) EraseSubject(ctx context.Context, subject string, p ...DeleteParams) (Erasure, error) {
	r := &call{method: http.MethodDelete, path: path("subjects", subject)}
	for _, one := range p {
		r.header = ifMatch(one.IfMatch)
	}
	return read[Erasure](ctx, c, r)
}

// RenameSubject renames a subject: its schedules in all workflows, their history and its profile. Keys and times stay. It returns
// ErrConflict if the new name has a profile or schedules already.
func (c *Client) RenameSubject(ctx context.Context, subject, to string) error {
	body, err := encode(struct {
		To string `json:"to"`
	}{to})
	if err != nil {
		return err
	}
	_, err = read[struct{}](ctx, c, &call{method: http.MethodPost, path: path("subjects", subject, "rename"), body: body, header: idempotent("")})
	return err
}
