package carillontest

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// subject is the profile of a subject.
type subject struct {
	carillon.Subject
	windows calendar.Quiet
}

type subjectAnswer struct{ carillon.Subject }

func (a subjectAnswer) etag() int64 { return a.Version }

func (s *Server) putSubject(r *http.Request, values []string) (any, error) {
	var p carillon.SubjectParams
	if err := read(r, &p); err != nil {
		return nil, err
	}
	windows, err := readQuiet(p.QuietHours)
	if err := fault.Join(err, checkZone("/timezone", p.Timezone)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, status := s.subjects[values[0]], http.StatusOK
	version := int64(0)
	if before != nil {
		version = before.Version
	}
	if err := condition(r, version); err != nil {
		return nil, err
	}
	is := &subject{carillon.Subject{Subject: values[0], Timezone: p.Timezone, QuietHours: p.QuietHours, Labels: p.Labels, Version: 1, CreatedAt: s.now, UpdatedAt: s.now, UpdatedBy: "carillontest"}, windows}
	if is.Labels == nil {
		is.Labels = map[string]string{}
	}
	for i := range is.QuietHours {
		if is.QuietHours[i].Then == "" {
			is.QuietHours[i].Then = "defer"
		}
	}
	if before == nil {
		status = http.StatusCreated
	} else {
		if before.Timezone == is.Timezone && before.windows.String() == is.windows.String() && maps.Equal(before.Labels, is.Labels) {
			return subjectAnswer{before.Subject}, nil
		}
		is.Version, is.CreatedAt = before.Version+1, before.CreatedAt
	}
	s.subjects[values[0]] = is
	for _, h := range s.byName() {
		if h.subjectName() == values[0] {
			h.retimeFollower()
		}
	}
	return reply{status, subjectAnswer{is.Subject}}, nil
}

// retimeFollower times a schedule that follows its subject by the present profile, from now on.
func (h *schedule) retimeFollower() {
	s := h.server
	h.awaken()
	if !followsSubject(h.spec) {
		return
	}
	if h.member == nil { // it is timed by the new profile when it fires again
		if t, err := h.compile(); err == nil {
			h.timing = t.Moved(h.moves)
		}
		return
	}
	if zone, _ := s.profile(h.workflow, h.subjectName()); zone == "" {
		return // it keeps the zone that it has
	}
	before := h.timing
	after, err := h.compile()
	if err == nil && len(h.moves) > 0 {
		after = after.Moved(h.moves)
	}
	if err == nil && before.Hash() == after.Hash() {
		return
	}
	due := h.leave(s.now)
	if err != nil {
		h.status, h.statusNote = quarantined, new("its spec cannot be computed in the zone of its key")
		h.decideAll(due)
		return
	}
	for i := range due {
		if _, _, quiet := after.QuietHours(s.now); !quiet && before.Waits(due[i].At) { // a tick that waited need not wait any longer
			due[i].Quiet = false
		}
	}
	h.timing = after
	h.rejoin(after.FirstAt(h.createdAt))
	if before.Zone() != after.Zone() && after.Recurs() && after.OnceADay(s.now) {
		h.rezonedAt = new(s.now)
	}
	h.decideAll(due)
}

// rejoin lets a schedule that left fire by its new timing, from now on or from the end of its pause. It is completed if nothing is left.
func (h *schedule) rejoin(first time.Time) {
	if !h.rearm(first) && h.status == active {
		h.status = completed
	}
}

func (s *Server) getSubject(r *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.subjects[values[0]]
	if is == nil {
		return nil, fault.NotFound("subject %q has no profile", values[0])
	}
	return conditional(r, is.Version, subjectAnswer{is.Subject})
}

func (s *Server) listSubjects(r *http.Request, _ []string) (any, error) {
	q := newQuery(r)
	q.only("subject_prefix", "limit", "cursor")
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []carillon.Subject{}
	for _, of := range slices.Sorted(maps.Keys(s.subjects)) {
		if strings.HasPrefix(of, q.Get("subject_prefix")) {
			all = append(all, s.subjects[of].Subject)
		}
	}
	return page(q, all)
}

// readQuiet reads the quiet hours of a profile.
func readQuiet(all carillon.QuietWindows) (windows calendar.Quiet, err error) {
	for _, one := range all {
		from, fromOK := timeOfDay(one.From)
		to, toOK := timeOfDay(one.To)
		if one.To == "24:00" {
			to, toOK = 24*3600, true
		}
		switch {
		case !fromOK || !toOK || from == to:
			return nil, fault.Invalid("/quiet_hours", "%s to %s are not two different times of day such as 22:00", one.From, one.To)
		case one.Then != "" && one.Then != "defer" && one.Then != "skip":
			return nil, fault.Invalid("/quiet_hours", "%q is neither defer nor skip", one.Then)
		}
		w := calendar.Window{From: from, To: to, Skip: one.Then == "skip"}
		if one.Days != "" {
			if w.Days, err = calendar.ReadWeekdays(one.Days); err != nil {
				return nil, fault.Invalid("/quiet_hours", "%q is not a list of days of the week such as 1-5: %s", one.Days, err)
			}
		}
		windows = append(windows, w)
	}
	if windows.LeavesNothing() {
		return nil, fault.Invalid("/quiet_hours", "the windows cover the whole week: leave some time without quiet hours")
	}
	return windows, nil
}

// timeOfDay reads a time such as 22:00 as seconds of the day.
func timeOfDay(text string) (int, bool) {
	t, err := time.Parse("15:04", text)
	return t.Hour()*3600 + t.Minute()*60, err == nil && len(text) == len("15:04")
}
