package carillontest

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules/runs"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// params are the body of an upsert.
type params struct {
	Spec     calendar.Spec     `json:"spec"`
	Policy   carillon.Policy   `json:"policy,omitzero"`
	Delivery carillon.Delivery `json:"delivery,omitzero"`
	Subject  string            `json:"subject,omitempty"`
	Payload  rawJSON           `json:"payload,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Note     noteChange        `json:"note,omitzero"`
	Status   string            `json:"status,omitempty"`
}

// noteChange is a note that a body sets or removes. The zero value leaves the note as it is.
type noteChange struct {
	text *string
	sent bool
}

func (n *noteChange) UnmarshalJSON(b []byte) error {
	n.sent = true
	return json.Unmarshal(b, &n.text)
}

// definition is what a client says of a schedule.
type definition struct {
	spec     calendar.Spec
	specText string
	stated   carillon.Defaults
	subject  string // empty: the key
	payload  rawJSON
	labels   map[string]string

	known   terms // resolved with the defaults of a workflow as it was then
	knownOf *workflow
	knownAt time.Time
}

// termsIn returns the terms of the definition in a workflow, which may be nil.
func (d *definition) termsIn(w *workflow) terms {
	if w == nil {
		return resolve(d.stated, carillon.Defaults{})
	}
	if d.knownOf != w || !d.knownAt.Equal(w.UpdatedAt) {
		d.known, d.knownOf, d.knownAt = resolve(d.stated, w.Defaults), w, w.UpdatedAt
	}
	return d.known
}

// read checks all of a body but its spec.
func (p params) read() (d definition, err error) {
	specText, err := json.Marshal(p.Spec)
	if err != nil {
		return d, fault.Malformed("invalid_json", "%s", err)
	}
	d = definition{spec: p.Spec, specText: string(specText), stated: carillon.Defaults{Policy: p.Policy, Delivery: p.Delivery}, subject: p.Subject, payload: p.Payload, labels: p.Labels}
	if d.payload == "null" {
		d.payload = ""
	}
	if d.labels == nil {
		d.labels = map[string]string{}
	}
	errs := []error{checkTerms("", d.stated)}
	for label, value := range p.Labels {
		if !validName(label) || len(value) > 256 {
			errs = append(errs, fault.Invalid("/labels/"+label, "a label's name is 1 to 128 of A-Z a-z 0-9 . _ -, and its value has at most 256 bytes"))
		}
	}
	if p.Subject != "" && !validKey(p.Subject) {
		errs = append(errs, fault.Invalid("/subject", "a subject is 1 to 256 bytes of UTF-8 without control characters"))
	}
	if p.Note.text != nil && len(*p.Note.text) > 1000 {
		errs = append(errs, fault.Invalid("/note", "a note has at most 1000 bytes"))
	}
	if !slices.Contains([]string{"", active, paused}, p.Status) {
		errs = append(errs, fault.Invalid("/status", "%q is neither active nor paused", p.Status))
	}
	return d, fault.Join(errs...)
}

func validName(s string) bool {
	return s != "" && len(s) <= 128 && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	})
}

func validKey(s string) bool {
	return s != "" && len(s) <= 256 && utf8.ValidString(s) && !slices.ContainsFunc([]rune(s), unicode.IsControl)
}

func checkNames(of name) error {
	var errs []error
	if !validName(of.workflow) {
		errs = append(errs, fault.Invalid("/workflow", "a workflow's name is 1 to 128 of A-Z a-z 0-9 . _ -"))
	}
	if !validKey(of.key) {
		errs = append(errs, fault.Invalid("/key", "a key is 1 to 256 bytes of UTF-8 without control characters"))
	}
	return fault.Join(errs...)
}

// compile returns the timing of the schedule's spec by the present profile of its subject and the present calendars, without moves.
func (h *schedule) compile() (*calendar.Timing, error) {
	c := calendar.Context{Created: h.anchor, Identity: h.identity()}
	if followsSubject(h.spec) {
		c.SubjectZone, c.SubjectQuiet = h.server.profile(h.workflow, h.subjectName())
	}
	return h.server.compile(h.spec, c)
}

func followsSubject(spec calendar.Spec) bool { return spec.Timezone == "@subject" }

// compile compiles a spec with the present calendars. Its faults are located below /spec.
func (s *Server) compile(spec calendar.Spec, c calendar.Context) (*calendar.Timing, error) {
	c.Named = s.datesOf
	t, err := calendar.Compile(spec, c)
	faults, bad := errors.AsType[calendar.Faults](err)
	if !bad {
		return t, err
	}
	fields := make([]fault.Field, len(faults))
	for i, one := range faults {
		fields[i] = fault.Field{Pointer: "/spec" + one.Pointer, Code: one.Code, Detail: one.Detail}
	}
	return nil, fault.Fields(fields...)
}

// compiled compiles the spec of the schedule and checks that it fires again. first is the earliest nominal time
// that may count for the schedule.
func (h *schedule) compiled() (t *calendar.Timing, first time.Time, err error) {
	if t, err = h.compile(); err != nil {
		return nil, first, err
	}
	_, ok := t.Next(h.server.now)
	if runs.Delays(t) {
		_, ok = t.First(h.server.now)
	}
	if !ok {
		return nil, first, neverFires()
	}
	return t, t.FirstAt(h.createdAt), nil
}

func neverFires() error {
	return fault.Fields(fault.Field{Pointer: "/spec", Code: "never_fires", Detail: "the spec has no coming tick"})
}

func ticksOf(spec calendar.Spec) *int {
	if spec.MaxTicks == nil {
		return nil
	}
	return new(*spec.MaxTicks)
}

func wholeSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); !whole.Equal(t) {
		return whole.Add(time.Second)
	}
	return t
}

// upcoming answers the coming ticks of a stored schedule.
func (s *Server) upcoming(r *http.Request, values []string) (any, error) {
	p := struct {
		count int
		from  time.Time
	}{count: 5}
	q := newQuery(r)
	p.count = q.number("count", 5, 1, 1000)
	p.from = q.time("from")
	if q.err != nil {
		return nil, q.err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.find(values)
	if err != nil {
		return nil, err
	}
	after := s.now
	if !p.from.IsZero() {
		after = p.from
	}
	next := h.nextAfter
	if h.status == paused && h.member == nil {
		next = h.ifResumed()
	}
	out := aheadOf(h.timing, after, time.Time{}, p.count, next)
	if runs.Delays(h.timing) && h.status != completed {
		out.Exhausted = false
	}
	out.Warnings = warnings(h.timing, s.now)
	return out, nil
}

// ifResumed returns the coming times of a paused schedule, as if it were resumed now.
func (h *schedule) ifResumed() func(time.Time) (time.Time, bool) {
	would := *h
	from := h.server.now.Truncate(time.Second).Add(time.Second)
	would.member = &membership{from: from}
	if runs.Delays(h.timing) && h.delayAt == nil && (h.left == nil || *h.left > 0) {
		if tick, ok := h.timing.Next(from); ok {
			would.member.next = tick.At
		}
		return would.nextAfter
	}
	if h.left != nil {
		would.member.until = new(h.server.now)
		if last, ok := h.timing.Nth(from, *h.left); ok && *h.left > 0 {
			would.member.until = &last.At
		}
	}
	return would.nextAfter
}

// preview answers the coming ticks of a spec that is not stored.
func (s *Server) preview(r *http.Request, _ []string) (any, error) {
	var p struct {
		Spec     calendar.Spec `json:"spec"`
		Workflow string        `json:"workflow"`
		Key      string        `json:"key"`
		Subject  string        `json:"subject"`
		From     *time.Time    `json:"from"`
		Count    *int          `json:"count"`
		Until    *time.Time    `json:"until"`
	}
	if err := read(r, &p); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	count, until := 5, time.Time{}
	if p.Count != nil {
		count = *p.Count
	}
	if count < 1 || count > 1000 {
		return nil, fault.Invalid("/count", "%d is not between 1 and 1000", count)
	}
	if p.Until != nil {
		until = *p.Until
	}
	of := schedule{server: s, name: name{p.Workflow, p.Key}, definition: &definition{spec: p.Spec, subject: p.Subject}, anchor: wholeSecond(s.now)}
	t, err := of.compile()
	if err != nil {
		return nil, err
	}
	after := s.now
	if p.From != nil {
		after = p.From.UTC()
	}
	left := 0
	if p.Spec.MaxTicks != nil {
		left = *p.Spec.MaxTicks
	}
	out := aheadOf(t, after, until, count, func(after time.Time) (time.Time, bool) {
		if first := t.FirstAt(of.anchor).Add(-time.Second); after.Before(first) && p.From == nil && !runs.Delays(t) {
			after = first
		}
		tick, ok := t.Next(after)
		if runs.Delays(t) && p.From == nil && after.Equal(s.now) {
			tick, ok = t.First(of.anchor)
		}
		if left--; left < 0 && p.Spec.MaxTicks != nil {
			return time.Time{}, false
		}
		return tick.At, ok
	})
	out.Warnings = warnings(t, s.now)
	return out, nil
}

// aheadOf lists coming ticks.
func aheadOf(t *calendar.Timing, after, until time.Time, count int, next func(time.Time) (time.Time, bool)) carillon.Upcoming {
	out := carillon.Upcoming{Ticks: []carillon.UpcomingTick{}, Reading: t.Reading(), Class: string(t.Class())}
	for {
		at, ok := next(after)
		if !ok {
			out.Exhausted = true
			return out
		}
		if len(out.Ticks) == count || !until.IsZero() && at.After(until) {
			return out
		}
		tick, _ := t.Prev(at.Add(time.Second))
		out.Ticks = append(out.Ticks, carillon.UpcomingTick{Timestamp: at, LocalTime: t.Local(at), DST: tick.DST.String()})
		after = at
	}
}

// profile returns the zone and the quiet hours that @subject means. The zone is empty if there is none.
func (s *Server) profile(workflow, of string) (zone string, quiet calendar.Quiet) {
	if p := s.subjects[of]; p != nil {
		return p.Timezone, p.windows
	}
	if w := s.workflows[workflow]; w != nil {
		zone = w.FallbackTimezone
	}
	return cmp.Or(zone, s.fallback), nil
}
