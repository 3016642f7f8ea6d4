package carillon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Schedules are the schedules of the tenant, each named by its workflow and key. An empty key is "global".
type Schedules struct{ c *Client }

// Params define a schedule. Put restores the default of each absent member, except Note and Status, which stay unchanged.
type Params struct {
	Spec     Spec     `json:"spec"`
	Policy   Policy   `json:"policy,omitzero"`
	Delivery Delivery `json:"delivery,omitzero"`

	// Payload comes with each tick: any value that encoding/json can write. A json.RawMessage is sent byte for byte, a []byte as base64.
	Payload any               `json:"payload,omitempty"`
	Subject string            `json:"subject,omitempty"` // the person or thing that it is for; empty: its key
	Labels  map[string]string `json:"labels,omitempty"`
	Note    *string           `json:"note,omitempty"`
	Status  string            `json:"status,omitempty"` // "active" or "paused"

	// IfMatch, if not zero, is the version that must be the stored one. IfAbsent demands that no schedule is stored. If this does not hold,
	// the error is ErrPrecondition and nothing changes.
	IfMatch  int64 `json:"-"`
	IfAbsent bool  `json:"-"`
}

// Schedule is a stored schedule: its definition, its last ticks and its next ones.
type Schedule struct {
	ID       string `json:"id"`
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Subject  string `json:"subject"` // the person or thing that it is for
	Version  int64  `json:"version"` // of its definition and pause state; firing does not change it
	Status   string `json:"status"`  // "active", "paused", "completed" or "quarantined"

	Spec     Spec              `json:"spec"`
	Policy   Policy            `json:"policy"`
	Delivery Delivery          `json:"delivery"`
	Payload  json.RawMessage   `json:"payload"`
	Labels   map[string]string `json:"labels"`
	Note     string            `json:"note"`

	PausedBy    string     `json:"paused_by,omitempty"`    // "sync": a sync paused it, and the next one that lists it resumes it
	PausedUntil *time.Time `json:"paused_until,omitempty"` // nil: not paused, or until Resume
	StatusNote  string     `json:"status_note,omitempty"`  // why it is paused

	Reading         string `json:"reading"`           // the spec in English; empty if it cannot be computed
	TimezoneInForce string `json:"timezone_in_force"` // the zone that it is timed in: that of its subject, if it follows that

	NextAt     *time.Time  `json:"next_at"`      // nominal; nil if there is none
	NextLocal  *time.Time  `json:"next_local"`   // NextAt with the offset of that zone
	Upcoming   []time.Time `json:"upcoming"`     // nominal; up to 5
	LastAt     *time.Time  `json:"last_at"`      // nominal; nil before the first
	LastTickID string      `json:"last_tick_id"` // empty before the first
	Stats      Stats       `json:"stats"`
	Inherited  []string    `json:"inherited"` // JSON pointers to the values from the workflow's defaults
	Warnings   []Warning   `json:"warnings"`
	TZData     string      `json:"tzdata"` // version of the time zone data that timed it

	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
}

// Stats counts a schedule's ticks.
type Stats struct {
	Fired     int64 `json:"fired"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	Skipped   int64 `json:"skipped"`
	Missed    int64 `json:"missed"`
}

// Warning is a part of a spec that may be a mistake.
type Warning struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// globalKey is the key of a schedule whose key is left out.
const globalKey = "global"

// schedulePath returns the path of a schedule. An empty key is globalKey.
func schedulePath(workflow, key string, more ...string) string {
	return path(append([]string{"workflows", workflow, "schedules", cmp.Or(key, globalKey)}, more...)...)
}

// ifUnchanged returns the precondition of a resource whose version is the time of its last change.
func ifUnchanged(since time.Time) map[string]string {
	if since.IsZero() {
		return nil
	}
	return ifMatch(since.UnixMicro())
}

func ifMatch(version int64) map[string]string {
	if version == 0 {
		return nil
	}
	return map[string]string{"If-Match": `"` + strconv.FormatInt(version, 10) + `"`}
}

// Put creates or replaces the schedule of workflow and key. An empty key is "global", as in every call that takes a key. When Put returns
// without an error, the server has stored the next tick. A second Put of the same params changes nothing, not even the version.
func (s Schedules) Put(ctx context.Context, workflow, key string, p Params) (Schedule, error) {
	payload, err := raw(p.Payload)
	if err != nil {
		return Schedule{}, err
	}
	p.Payload = nil
	body, err := encode(p)
	if err != nil {
		return Schedule{}, err
	}
	r := &call{method: http.MethodPut, path: schedulePath(workflow, key), body: with(body, "payload", payload), header: ifMatch(p.IfMatch)}
	if p.IfAbsent {
		r.header = map[string]string{"If-None-Match": "*"}
	}
	r.once = r.header != nil // the first attempt may have stored the version that a second one would find
	return read[Schedule](ctx, s.c, r)
}

// Get returns a schedule.
func (s Schedules) Get(ctx context.Context, workflow, key string) (Schedule, error) {
	return get[Schedule](ctx, s.c, schedulePath(workflow, key), nil)
}

// ByID returns the schedule with an id, such as the ScheduleID of a tick. A deleted schedule is ErrNotFound.
func (s Schedules) ByID(ctx context.Context, id string) (Schedule, error) {
	return get[Schedule](ctx, s.c, path("schedules", id), nil)
}

// GetMany returns the schedules of up to 1,000 keys of a workflow, in the order of the keys. It leaves out absent ones.
func (s Schedules) GetMany(ctx context.Context, workflow string, keys []string) ([]Schedule, error) {
	wanted := struct {
		Workflow string   `json:"workflow"`
		Keys     []string `json:"keys"`
	}{workflow, keys}
	found, err := send[struct {
		Items []Schedule `json:"items"`
	}](ctx, s.c, &call{method: http.MethodPost, path: path("schedules", "get")}, wanted)
	return found.Items, err
}

// DeleteParams are the conditions of a Delete.
type DeleteParams struct {
	IfMatch int64 // if not zero, the version that must be the stored one
}

// Delete deletes a schedule. Its history stays. Ticks that are not handed out never fire.
func (s Schedules) Delete(ctx context.Context, workflow, key string, p DeleteParams) error {
	r := &call{method: http.MethodDelete, path: schedulePath(workflow, key), header: ifMatch(p.IfMatch)}
	r.once = r.header != nil
	return s.c.remove(ctx, r)
}

// PauseParams are the end and the reason of a pause.
type PauseParams struct {
	Until *time.Time `json:"until,omitempty"` // rounded up to a whole second; nil: until Resume
	Note  string     `json:"note,omitempty"`

	IdempotencyKey string `json:"-"` // empty: a random one for each call
	IfMatch        int64  `json:"-"` // if not zero, the version that must be the stored one
}

// Pause pauses a schedule.
func (s Schedules) Pause(ctx context.Context, workflow, key string, p PauseParams) (Schedule, error) {
	if p.Until != nil {
		p.Until = ptr(wholeSecond(*p.Until))
	}
	return postIf[Schedule](ctx, s.c, schedulePath(workflow, key, "pause"), p, p.IdempotencyKey, p.IfMatch)
}

// ResumeParams are the options of Resume.
type ResumeParams struct {
	FireOnce       bool   `json:"fire_once,omitempty"` // one tick now if any was missed
	IdempotencyKey string `json:"-"`                   // empty: a random one for each call
	IfMatch        int64  `json:"-"`                   // if not zero, the version that must be the stored one
}

// Resume continues a paused schedule from now on. Times in the pause are not replayed.
func (s Schedules) Resume(ctx context.Context, workflow, key string, p ResumeParams) (Schedule, error) {
	return postIf[Schedule](ctx, s.c, schedulePath(workflow, key, "resume"), p, p.IdempotencyKey, p.IfMatch)
}

// idempotent returns the idempotency key of a call, which all its attempts send: a random one if key is empty.
func idempotent(key string) map[string]string {
	if key == "" {
		key = rand.Text()
	}
	return map[string]string{"Idempotency-Key": key}
}
