package carillontest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

type schedule struct {
	carillon.Schedule
	timing timing
	said   string // the body of the last put, to find out whether another put changes anything
	fires  int64
	order  []*tick // oldest first
}

func tag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

func (s *Server) put(r *http.Request, of name) (int, any) {
	var p definition
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if status, refused := condition(r, s.schedules[of]); refused != nil {
		return status, refused
	}
	return s.define(of, p)
}

type definition struct {
	carillon.Params
	Payload rawJSON `json:"payload"`
}

// define stores the definition of a schedule. The caller holds the lock.
func (s *Server) define(of name, p definition) (int, any) {
	held := s.schedules[of]
	t, err := newTiming(p.Spec, s.now)
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, "invalid", err.Error(), carillon.Field{Pointer: "/spec", Code: "invalid", Detail: err.Error()})
	}
	params, err := json.Marshal(p.Params)
	if err != nil {
		return refuse(http.StatusBadRequest, "malformed_json", err.Error())
	}
	said := string(params) + string(p.Payload)
	status := http.StatusOK
	if held == nil {
		status = http.StatusCreated
		s.made++
		held = &schedule{Schedule: carillon.Schedule{
			ID: fmt.Sprintf("s%d", s.made), Workflow: of.workflow, Key: of.key, Status: "active",
			Inherited: []string{}, Warnings: []carillon.Warning{}, TZData: "carillontest", CreatedAt: s.now, UpdatedBy: "carillontest",
		}}
		s.schedules[of] = held
	}
	if held.said == said {
		return status, held.view()
	}
	held.said, held.timing = said, t
	held.Version++
	held.UpdatedAt = s.now
	held.Spec, held.Policy, held.Delivery = p.Spec, p.Policy, p.Delivery
	held.Payload, held.Labels = []byte(p.Payload), p.Labels
	if p.Note != nil {
		held.Note = *p.Note
	}
	if p.Status != "" {
		held.Status = p.Status
	}
	held.retime(s.now)
	return status, held.view()
}

// rawJSON keeps a payload byte for byte, unlike the any of Params.
type rawJSON string

func (j *rawJSON) UnmarshalJSON(b []byte) error {
	*j = rawJSON(b)
	return nil
}

// retime computes the next time after now.
func (h *schedule) retime(now time.Time) {
	h.Upcoming, h.NextAt = []time.Time{}, nil
	if h.Status == "paused" {
		return
	}
	left := 5
	if h.Spec.MaxTicks > 0 {
		left = min(left, h.Spec.MaxTicks-int(h.fires))
	}
	for at := now; len(h.Upcoming) < left; {
		next, ok := h.timing.next(at)
		if !ok {
			break
		}
		h.Upcoming, at = append(h.Upcoming, next), next
	}
	h.Status = "completed"
	if len(h.Upcoming) > 0 {
		h.Status, h.NextAt = "active", &h.Upcoming[0]
	}
}

// view returns a copy that can be used without the lock.
func (h *schedule) view() carillon.Schedule {
	v := h.Schedule
	v.Upcoming = slices.Clone(v.Upcoming)
	if v.NextAt != nil {
		v.NextAt = new(*v.NextAt)
	}
	if len(v.Payload) == 0 {
		v.Payload = []byte("null")
	}
	return v
}

// find returns a schedule, or the answer 404. The caller holds the lock.
func (s *Server) find(of name) (*schedule, int, any) {
	if held := s.schedules[of]; held != nil {
		return held, 0, nil
	}
	status, refused := refuse(http.StatusNotFound, "not_found", fmt.Sprintf("no schedule %q of workflow %q", of.key, of.workflow))
	return nil, status, refused
}

func (s *Server) get(r *http.Request, of name) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, status, refused := s.find(of)
	if refused != nil {
		return status, refused
	}
	if status, refused := checkMatch(r, held); refused != nil {
		return status, refused
	}
	if hasTag(r, "If-None-Match", held.Version, true) {
		return http.StatusNotModified, nil
	}
	return http.StatusOK, held.view()
}

// named answers with the schedules of the requested keys.
func (s *Server) named(r *http.Request) (int, any) {
	var p struct {
		Workflow string   `json:"workflow"`
		Keys     []string `json:"keys"`
	}
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := struct {
		Items []carillon.Schedule `json:"items"`
	}{[]carillon.Schedule{}}
	for _, key := range p.Keys {
		if held := s.schedules[name{p.Workflow, key}]; held != nil {
			found.Items = append(found.Items, held.view())
		}
	}
	return http.StatusOK, found
}

func (s *Server) remove(r *http.Request, of name) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, status, refused := s.find(of)
	if refused != nil {
		return status, refused
	}
	if status, refused := condition(r, held); refused != nil {
		return status, refused
	}
	delete(s.schedules, of)
	return http.StatusNoContent, nil
}

func (s *Server) pause(r *http.Request, of name) (int, any) {
	var p carillon.PauseParams
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held, status, refused := s.find(of)
	if refused != nil {
		return status, refused
	}
	if status, refused := condition(r, held); refused != nil {
		return status, refused
	}
	if held.Status != "paused" {
		held.Version++
	}
	held.Status, held.PausedUntil, held.StatusNote = "paused", p.Until, p.Note
	held.retime(s.now)
	return http.StatusOK, held.view()
}

func (s *Server) resume(r *http.Request, of name) (int, any) {
	var p carillon.ResumeParams
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	held, status, refused := s.find(of)
	if refused != nil {
		return status, refused
	}
	if status, refused := condition(r, held); refused != nil {
		return status, refused
	}
	if held.Status == "paused" {
		held.Version++
		held.Status, held.PausedUntil, held.StatusNote = "active", nil, ""
		held.retime(s.now)
	}
	return http.StatusOK, held.view()
}

func (s *Server) upcoming(r *http.Request, of name) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held, status, refused := s.find(of)
	if refused != nil {
		return status, refused
	}
	count, at := 0, s.now
	if text := r.URL.Query().Get("count"); text != "" {
		count, _ = strconv.Atoi(text)
	}
	if text := r.URL.Query().Get("from"); text != "" {
		at, _ = time.Parse(time.RFC3339, text)
	}
	return http.StatusOK, held.timing.ahead(at, count)
}

func (s *Server) preview(r *http.Request) (int, any) {
	var p struct {
		Spec  carillon.Spec `json:"spec"`
		From  time.Time     `json:"from"`
		Count int           `json:"count"`
	}
	if status, refused := body(r, &p); refused != nil {
		return status, refused
	}
	if p.From.IsZero() {
		p.From = s.Now()
	}
	t, err := newTiming(p.Spec, p.From)
	if err != nil {
		return refuse(http.StatusUnprocessableEntity, "invalid", err.Error(), carillon.Field{Pointer: "/spec", Code: "invalid", Detail: err.Error()})
	}
	return http.StatusOK, t.ahead(p.From, p.Count)
}

// ahead returns the next count ticks; zero means 5.
func (t timing) ahead(at time.Time, count int) carillon.Upcoming {
	if count == 0 {
		count = 5
	}
	u := carillon.Upcoming{Ticks: []carillon.UpcomingTick{}, Warnings: []carillon.Warning{}, Class: "mixed"}
	for len(u.Ticks) < count {
		next, ok := t.next(at)
		if !ok {
			u.Exhausted = true
			break
		}
		u.Ticks = append(u.Ticks, carillon.UpcomingTick{Timestamp: next, LocalTime: next.In(t.zone), DST: "none"})
		at = next
	}
	return u
}

func (s *Server) list(r *http.Request) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	var picked []carillon.Schedule
	for of, held := range s.schedules {
		if w := q.Get("workflow"); w != "" && w != of.workflow {
			continue
		}
		if status := q.Get("status"); status != "" && status != held.Status {
			continue
		}
		if label, value, ok := strings.Cut(q.Get("label"), ":"); ok && held.Labels[label] != value {
			continue
		}
		if before, err := time.Parse(time.RFC3339, q.Get("due_before")); err == nil && (held.NextAt == nil || !held.NextAt.Before(before)) {
			continue
		}
		if strings.HasPrefix(of.key, q.Get("key_prefix")) {
			picked = append(picked, held.view())
		}
	}
	slices.SortFunc(picked, func(a, b carillon.Schedule) int {
		if q.Has("due_before") && !a.NextAt.Equal(*b.NextAt) {
			return a.NextAt.Compare(*b.NextAt)
		}
		return strings.Compare(a.Workflow+"\x00"+a.Key, b.Workflow+"\x00"+b.Key)
	})
	return page(r, picked)
}

// page returns the page of a list that limit and cursor select. The cursor is a position here.
func page[T any](r *http.Request, all []T) (int, any) {
	limit, from := 100, 0
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return refuse(http.StatusUnprocessableEntity, "invalid", "limit is 1 to 1000")
		}
		limit = n
	}
	if text := r.URL.Query().Get("cursor"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return refuse(http.StatusUnprocessableEntity, "invalid", "the cursor is not of this list")
		}
		from = n
	}
	answer := struct {
		Items      []T     `json:"items"`
		NextCursor *string `json:"next_cursor"`
	}{Items: []T{}}
	if from < len(all) {
		answer.Items = all[from:min(len(all), from+limit)]
	}
	if from+limit < len(all) {
		answer.NextCursor = new(strconv.Itoa(from + limit))
	}
	return http.StatusOK, answer
}
