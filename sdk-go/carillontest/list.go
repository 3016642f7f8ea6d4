package carillontest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/carillonhq/carillon/internal/fault"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// list answers the schedules that a filter selects, by workflow and key, or by due time.
func (s *Server) list(r *http.Request, _ []string) (any, error) {
	q := newQuery(r)
	q.only("workflow", "status", "key", "key_prefix", "key_contains", "subject", "label", "timezone", "calendar", "due_before", "fields", "limit", "cursor")
	before := q.time("due_before")
	s.mu.Lock()
	defer s.mu.Unlock()
	var picked []carillon.Schedule
	for _, h := range s.schedules {
		h.awaken()
		if !h.matches(q) {
			continue
		}
		v := h.view()
		if !before.IsZero() && (v.NextAt == nil || !v.NextAt.Before(before)) {
			continue
		}
		picked = append(picked, v)
	}
	slices.SortFunc(picked, func(a, b carillon.Schedule) int {
		if !before.IsZero() && !a.NextAt.Equal(*b.NextAt) {
			return a.NextAt.Compare(*b.NextAt)
		}
		return strings.Compare(a.Workflow+"\x00"+a.Key, b.Workflow+"\x00"+b.Key)
	})
	return page(q, picked)
}

// matches reports whether a filter selects the schedule, apart from due_before.
func (h *schedule) matches(q *query) bool {
	equal := func(name, value string) bool { return !q.Has(name) || q.Get(name) == value }
	return equal("workflow", h.workflow) && equal("status", h.status) && equal("key", h.key) && equal("subject", h.subjectName()) &&
		equal("timezone", h.spec.Timezone) && (!q.Has("calendar") || h.leavesOut(q.Get("calendar"))) && strings.HasPrefix(h.key, q.Get("key_prefix")) && strings.Contains(h.key, q.Get("key_contains")) &&
		(!q.Has("label") || h.hasLabel(q.Get("label")))
}

// hasLabel reports whether the schedule has a label, given as name:value.
func (h *schedule) hasLabel(label string) bool {
	name, value, _ := strings.Cut(label, ":")
	has, there := h.labels[name]
	return there && has == value
}

// tickOf returns the tick of an id, or nil. The caller holds the lock.
func (s *Server) tickOf(id string) *tick {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "tick_"))
	if err != nil || n < 1 || n > len(s.order) {
		return nil
	}
	return s.order[n-1]
}

// tick returns a tick, or the fault 404. The caller holds the lock.
func (s *Server) tick(id string) (*tick, error) {
	if t := s.tickOf(id); t != nil {
		return t, nil
	}
	return nil, fault.NotFound("no tick %q", id)
}

func (s *Server) oneTick(_ *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.tick(values[0])
	if err != nil {
		return nil, err
	}
	r := t.record()
	r.Payload = t.ownPayload()
	return r, nil
}

// history answers the ticks of a schedule, newest first.
func (s *Server) history(r *http.Request, values []string) (any, error) {
	q := newQuery(r)
	q.only("state", "from", "to", "limit", "cursor")
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.find(values)
	if err != nil {
		return nil, err
	}
	return recordsOf(q, h.history)
}

// allTicks answers the ticks of all schedules that a filter selects, newest first.
func (s *Server) allTicks(r *http.Request, _ []string) (any, error) {
	q := newQuery(r)
	q.only("workflow", "key", "subject", "schedule_id", "cause", "state", "from", "to", "limit", "cursor")
	s.mu.Lock()
	defer s.mu.Unlock()
	return recordsOf(q, s.order)
}

// byTime orders ticks by their nominal times, as the server does: the tick of the timing comes before those that were triggered at that
// moment, however late it fires.
func byTime(a, b *tick) int {
	if order := a.at.Compare(b.at); order != 0 || a.timed == b.timed {
		return order
	}
	if a.timed {
		return -1
	}
	return 1
}

func recordsOf(q *query, ticks []*tick) (any, error) {
	from, to := q.time("from"), q.time("to")
	equal := func(name, value string) bool { return !q.Has(name) || q.Get(name) == value }
	sorted := slices.Clone(ticks)
	slices.SortStableFunc(sorted, byTime)
	var records []carillon.TickRecord
	for _, t := range slices.Backward(sorted) {
		h := t.of
		if equal("state", t.state) && equal("workflow", h.workflow) && equal("key", h.key) && equal("subject", t.subject) && equal("schedule_id", h.id) &&
			equal("cause", t.cause) && !t.at.Before(from) && (to.IsZero() || t.at.Before(to)) {
			records = append(records, t.record())
		}
	}
	return page(q, records)
}
