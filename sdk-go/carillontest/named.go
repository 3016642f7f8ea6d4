package carillontest

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
)

// days are a named calendar: the days that specs exclude by its name.
type days struct {
	Name      string    `json:"name"`
	Dates     []string  `json:"dates"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`

	dates []calendar.Date
}

func (d *days) etag() int64 { return d.UpdatedAt.UnixMicro() }

// datesOf returns the dates of a named calendar.
func (s *Server) datesOf(name string) ([]calendar.Date, bool) {
	d := s.calendars[name]
	if d == nil {
		return nil, false
	}
	return d.dates, true
}

func (s *Server) putCalendar(r *http.Request, values []string) (any, error) {
	var p struct {
		Dates []string `json:"dates"`
		ICS   string   `json:"ics"`
	}
	if err := read(r, &p); err != nil {
		return nil, err
	}
	if p.ICS != "" {
		return nil, unsupported("import of iCalendar documents (/ics)")
	}
	if !validName(values[0]) {
		return nil, fault.Invalid("/calendar", "a calendar's name is 1 to 128 of A-Z a-z 0-9 . _ -")
	}
	is := &days{Name: values[0], Dates: []string{}, UpdatedBy: "carillontest"}
	slices.Sort(p.Dates)
	for i, text := range slices.Compact(p.Dates) {
		date, err := calendar.ParseDate(text)
		if err != nil {
			return nil, fault.Fields(fault.Field{Pointer: "/dates/" + strconv.Itoa(i), Code: "date_syntax", Detail: err.Error()})
		}
		is.dates, is.Dates = append(is.dates, date), append(is.Dates, text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, status := s.calendars[values[0]], http.StatusCreated
	is.CreatedAt, is.UpdatedAt = s.now, s.now
	version := int64(0)
	if before != nil {
		version, status = before.etag(), http.StatusOK
		is.CreatedAt = before.CreatedAt
		if !is.UpdatedAt.After(before.UpdatedAt) {
			is.UpdatedAt = before.UpdatedAt.Add(time.Microsecond)
		}
	}
	if err := condition(r, version); err != nil {
		return nil, err
	}
	if before != nil && slices.Equal(before.Dates, is.Dates) {
		return before, nil
	}
	if newQuery(r).Get("dry_run") == "true" {
		return is, nil
	}
	s.calendars[values[0]] = is
	for _, h := range s.byName() {
		h.retimeNamed(values[0])
	}
	return reply{status, is}, nil
}

// leavesOut reports whether the spec names a calendar whose days it leaves out.
func (h *schedule) leavesOut(name string) bool {
	return h.spec.Exclude != nil && slices.Contains(h.spec.Exclude.Named, name)
}

// retimeNamed retimes, from now on, a schedule that excludes a named calendar.
func (h *schedule) retimeNamed(name string) {
	if !h.leavesOut(name) {
		return
	}
	h.awaken()
	after, err := h.compile()
	if err != nil {
		return // the calendar was there before
	}
	after = after.Moved(h.moves)
	if h.member == nil {
		h.timing = after
		return
	}
	due := h.leave(h.server.now)
	h.timing = after
	h.rejoin(time.Time{})
	h.decideAll(due)
}

func (s *Server) getCalendar(r *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.calendars[values[0]]
	if d == nil {
		return nil, fault.NotFound("no calendar %q", values[0])
	}
	return conditional(r, d.etag(), d)
}

func (s *Server) listCalendars(r *http.Request, _ []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []*days{}
	for _, of := range slices.Sorted(maps.Keys(s.calendars)) {
		all = append(all, s.calendars[of])
	}
	return page(newQuery(r), all)
}

func (s *Server) deleteCalendar(r *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.calendars[values[0]]
	if d == nil {
		return nil, fault.NotFound("no calendar %q", values[0])
	}
	if err := condition(r, d.etag()); err != nil {
		return nil, err
	}
	for _, h := range s.schedules {
		if h.spec.Exclude != nil && slices.Contains(h.spec.Exclude.Named, values[0]) {
			return nil, fault.Conflict("calendar_in_use", "schedule %s/%s excludes it", h.workflow, h.key)
		}
	}
	delete(s.calendars, values[0])
	return reply{status: http.StatusNoContent}, nil
}
