package carillon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

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

// Put creates or replaces the schedule of workflow and key. An empty key is "global", as in every call that takes one. When it returns without an error, the next tick is armed. A second Put of the same
// params changes nothing, not even the version.
func (c *Client) Put(ctx context.Context, workflow, key string, p Params) (Schedule, error) {
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
	return read[Schedule](ctx, c, r)
}

// Get returns a schedule.
func (c *Client) Get(ctx context.Context, workflow, key string) (Schedule, error) {
	return read[Schedule](ctx, c, &call{method: http.MethodGet, path: schedulePath(workflow, key)})
}

// GetMany returns the schedules of up to 1,000 keys of a workflow, in the order of the keys. It leaves out absent ones.
func (c *Client) GetMany(ctx context.Context, workflow string, keys []string) ([]Schedule, error) {
	body, err := encode(struct {
		Workflow string   `json:"workflow"`
		Keys     []string `json:"keys"`
	}{workflow, keys})
	if err != nil {
		return nil, err
	}
	found, err := read[struct {
		Items []Schedule `json:"items"`
	}](ctx, c, &call{method: http.MethodPost, path: path("schedules", "get"), body: body})
	return found.Items, err
}

// Filter selects schedules of a list; the zero value selects all. At most one of KeyPrefix, Label and DueBefore may be set.
type Filter struct {
	Workflow  string
	Status    string
	KeyPrefix string
	Label     string    // "name:value"
	DueBefore time.Time // the list is then in the order of due times
	PageSize  int       // schedules per request, up to 1,000; zero is the server's default
}

// List iterates over the schedules that filter selects. An error comes once and ends the loop.
func (c *Client) List(ctx context.Context, filter Filter) iter.Seq2[Schedule, error] {
	q := query{}
	q.text("workflow", filter.Workflow)
	q.text("status", filter.Status)
	q.text("key_prefix", filter.KeyPrefix)
	q.text("label", filter.Label)
	q.time("due_before", filter.DueBefore)
	q.number("limit", filter.PageSize)
	return pages[Schedule](ctx, c, path("schedules"), url.Values(q))
}

// DeleteParams are the conditions of a Delete.
type DeleteParams struct {
	IfMatch int64 // if not zero, the version that must be the stored one
}

// Delete deletes a schedule. Its history stays. Ticks that are not handed out never fire.
func (c *Client) Delete(ctx context.Context, workflow, key string, p DeleteParams) error {
	r := &call{method: http.MethodDelete, path: schedulePath(workflow, key), header: ifMatch(p.IfMatch)}
	r.once = r.header != nil
	return c.remove(ctx, r)
}

// PauseParams are the end and the reason of a pause.
type PauseParams struct {
	Until *time.Time `json:"until,omitempty"` // rounded up to a whole second; nil: until Resume
	Note  string     `json:"note,omitempty"`

	IfMatch int64 `json:"-"` // if not zero, the version that must be the stored one
}

// Pause pauses a schedule.
func (c *Client) Pause(ctx context.Context, workflow, key string, p PauseParams) (Schedule, error) {
	if p.Until != nil {
		p.Until = new(p.Until.Add(time.Second - 1).Truncate(time.Second))
	}
	body, err := encode(p)
	if err != nil {
		return Schedule{}, err
	}
	r := &call{method: http.MethodPost, path: schedulePath(workflow, key, "pause"), body: body, header: ifMatch(p.IfMatch)}
	r.once = r.header != nil
	return read[Schedule](ctx, c, r)
}

// ResumeParams are the options of Resume.
type ResumeParams struct {
	FireOnce       bool   `json:"fire_once,omitempty"` // one tick now if any was missed
	IdempotencyKey string `json:"-"`                   // empty: a random one for each call
	IfMatch        int64  `json:"-"`                   // if not zero, the version that must be the stored one
}

// Resume continues a paused schedule from now on. Times in the pause are not replayed.
func (c *Client) Resume(ctx context.Context, workflow, key string, p ResumeParams) (Schedule, error) {
	body, err := encode(p)
	if err != nil {
		return Schedule{}, err
	}
	r := &call{method: http.MethodPost, path: schedulePath(workflow, key, "resume"), body: body, header: idempotent(p.IdempotencyKey)}
	maps.Copy(r.header, ifMatch(p.IfMatch))
	return read[Schedule](ctx, c, r)
}

// TriggerParams say what payload the tick has, and when it fires: now, at At, or after In.
type TriggerParams struct {
	Payload        any    `json:"payload,omitempty"` // instead of the schedule's; as in Params
	At             string `json:"at,omitempty"`      // an instant, or a wall time in the schedule's zone, at most 366 days ahead
	In             string `json:"in,omitempty"`      // a duration such as "10m"
	IdempotencyKey string `json:"-"`                 // the same within 24 h fires once; empty: a random one for each call
}

// Trigger fires one tick, under the schedule's overlap policy. The timing does not move. A tick for later has the state "scheduled" and
// a DueAt; deleting the schedule cancels it.
func (c *Client) Trigger(ctx context.Context, workflow, key string, p TriggerParams) (TickRecord, error) {
	payload, err := raw(p.Payload)
	if err != nil {
		return TickRecord{}, err
	}
	p.Payload = nil
	body, err := json.Marshal(p)
	if err != nil {
		return TickRecord{}, err
	}
	r := &call{
		method: http.MethodPost,
		path:   schedulePath(workflow, key, "trigger"),
		body:   with(body, "payload", payload),
		header: idempotent(p.IdempotencyKey),
	}
	return read[TickRecord](ctx, c, r)
}

func idempotent(key string) map[string]string {
	if key == "" {
		key = rand.Text()
	}
	return map[string]string{"Idempotency-Key": key}
}
