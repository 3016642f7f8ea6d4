package carillontest

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/mergepatch"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

const held = "held"

// workflow is a registered workflow.
type workflow struct {
	carillon.Workflow
	running int         // attempts that run
	waiting []*schedule // are due, and wait for the release
}

// workflowAnswer is a workflow with its entity tag.
type workflowAnswer struct{ carillon.Workflow }

func (w workflowAnswer) etag() int64 { return w.UpdatedAt.UnixMicro() }

// register registers a workflow that is not known yet. The caller holds the lock.
func (s *Server) register(of string) *workflow {
	w := s.workflows[of]
	if w == nil {
		w = &workflow{Workflow: carillon.Workflow{Name: of, State: active, CreatedAt: s.now, UpdatedAt: s.now}}
		s.workflows[of] = w
	}
	return w
}

// workflowParams are the body of a workflow's upsert.
type workflowParams struct {
	Endpoint   *string           `json:"endpoint,omitempty"`
	Version    *string           `json:"version,omitempty"`
	MaxRunning *int              `json:"max_running,omitempty"`
	Rate       *carillon.Rate    `json:"rate,omitempty"`
	Expect     *carillon.Expect  `json:"expect,omitempty"`
	State      string            `json:"state,omitempty"`
	Fallback   *string           `json:"fallback_timezone,omitempty"`
	Defaults   carillon.Defaults `json:"defaults,omitzero"`
}

func (p workflowParams) check(of string) error {
	switch {
	case p.Endpoint != nil:
		return unsupported("endpoints of workflows (/endpoint): push to a handler with Server.Push")
	case p.Rate != nil:
		return unsupported("rates of workflows (/rate)")
	case p.Expect != nil:
		return unsupported("expectations of workflows (/expect)")
	}
	errs := []error{checkTerms("/defaults", p.Defaults)}
	if !validName(of) {
		errs = append(errs, fault.Invalid("/workflow", "a workflow's name is 1 to 128 of A-Z a-z 0-9 . _ -"))
	}
	if p.MaxRunning != nil && *p.MaxRunning < 1 {
		errs = append(errs, fault.Invalid("/max_running", "%d is less than 1: leave it out for no limit", *p.MaxRunning))
	}
	if !slices.Contains([]string{"", active, held}, p.State) {
		errs = append(errs, fault.Invalid("/state", "%q is not one of active, held", p.State))
	}
	if p.Fallback != nil {
		errs = append(errs, checkZone("/fallback_timezone", *p.Fallback))
	}
	return fault.Join(errs...)
}

// checkZone returns the fault of a value that is no time zone.
func checkZone(pointer, zone string) error {
	if zone == "" || !calendar.InForce().Has(zone) {
		return fault.Fields(fault.Field{Pointer: pointer, Code: "unknown_timezone", Detail: "it is not a time zone: name one such as Europe/Berlin"})
	}
	return nil
}

func (s *Server) putWorkflow(r *http.Request, values []string) (any, error) {
	var p workflowParams
	if err := read(r, &p); err != nil {
		return nil, err
	}
	return s.storeWorkflow(r, values[0], func(*workflow) (workflowParams, error) { return p, nil })
}

func (s *Server) patchWorkflow(r *http.Request, values []string) (any, error) {
	var change map[string]any
	if err := read(r, &change); err != nil {
		return nil, err
	}
	return s.storeWorkflow(r, values[0], func(w *workflow) (p workflowParams, err error) {
		if w == nil {
			return p, fault.NotFound("no workflow %q", values[0])
		}
		stored := workflowParams{State: w.State, Defaults: w.Defaults}
		if w.Version != "" {
			stored.Version = &w.Version
		}
		if w.MaxRunning != 0 {
			stored.MaxRunning = &w.MaxRunning
		}
		if w.FallbackTimezone != "" {
			stored.Fallback = &w.FallbackTimezone
		}
		merged, err := mergepatch.Apply(encoded(stored), encoded(change))
		if err != nil {
			return p, fault.Malformed("invalid_json", "%s", err)
		}
		return p, decode(merged, &p)
	})
}

// storeWorkflow stores the params that asked returns for the present workflow, which is nil if there is none.
func (s *Server) storeWorkflow(r *http.Request, of string, asked func(*workflow) (workflowParams, error)) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workflows[of]
	version := int64(0)
	if w != nil {
		version = w.UpdatedAt.UnixMicro()
	}
	if err := condition(r, version); err != nil {
		return nil, err
	}
	p, err := asked(w)
	if err == nil {
		err = p.check(of)
	}
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if w == nil {
		status = http.StatusCreated
	}
	w = s.register(of)
	w.Version, w.Defaults, w.FallbackTimezone, w.MaxRunning = text(p.Version), p.Defaults, text(p.Fallback), 0
	if p.MaxRunning != nil {
		w.MaxRunning = *p.MaxRunning
	}
	s.touch(w)
	if p.State != "" {
		s.setHeld(w, p.State)
	}
	s.inherit(of)
	return reply{status, workflowAnswer{w.Workflow}}, nil
}

// touch gives a workflow the time of its last change, which is its version. While the clock stands still, versions are a microsecond apart.
func (s *Server) touch(w *workflow) {
	if w.UpdatedAt = w.UpdatedAt.Add(time.Microsecond); w.UpdatedAt.Before(s.now) {
		w.UpdatedAt = s.now
	}
}

// inherit lets the schedules of a workflow follow its new defaults and its new fallback zone. The caller holds the lock.
func (s *Server) inherit(of string) {
	for _, h := range s.byName() {
		if h.workflow != of {
			continue
		}
		if h.member != nil {
			h.member.missed = h.terms().policy.Missed
		}
		h.retimeFollower()
	}
}

// byName returns the schedules by workflow and key.
func (s *Server) byName() []*schedule {
	return slices.SortedFunc(maps.Values(s.schedules), func(a, b *schedule) int {
		switch {
		case a.workflow != b.workflow && a.workflow < b.workflow, a.workflow == b.workflow && a.key < b.key:
			return -1
		}
		return 1
	})
}

// setHeld holds a workflow, or releases it.
func (s *Server) setHeld(w *workflow, state string) {
	if w.State == state {
		return
	}
	w.State = state
	if state == held {
		return
	}
	waiting := w.waiting
	w.waiting = nil
	for _, h := range waiting {
		if h.member != nil {
			h.rouse()
		}
	}
	ready := s.ready[w.Name]
	s.ready[w.Name] = nil
	for _, t := range ready { // those that waited for the release are looked at again
		if !t.parked || !s.unwanted(t) {
			t.parked = false
			s.ready[w.Name] = append(s.ready[w.Name], t)
		}
	}
	s.announce()
}

func (s *Server) hold(r *http.Request, values []string) (any, error) {
	return s.holdOrRelease(r, values[0], held)
}

func (s *Server) release(r *http.Request, values []string) (any, error) {
	return s.holdOrRelease(r, values[0], active)
}

func (s *Server) holdOrRelease(r *http.Request, of, state string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.workflow(r, of)
	if err != nil {
		return nil, err
	}
	if w.State != state {
		s.touch(w)
	}
	s.setHeld(w, state)
	return workflowAnswer{w.Workflow}, nil
}

// workflow returns a workflow whose version fulfils the preconditions of a request.
func (s *Server) workflow(r *http.Request, of string) (*workflow, error) {
	w := s.workflows[of]
	if w == nil {
		return nil, fault.NotFound("no workflow %q", of)
	}
	if r.Method == http.MethodGet {
		return w, nil
	}
	return w, condition(r, w.UpdatedAt.UnixMicro())
}

func (s *Server) getWorkflow(r *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.workflow(r, values[0])
	if err != nil {
		return nil, err
	}
	return conditional(r, w.UpdatedAt.UnixMicro(), workflowAnswer{w.Workflow})
}

func (s *Server) listWorkflows(r *http.Request, _ []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []carillon.Workflow{}
	for _, of := range slices.Sorted(maps.Keys(s.workflows)) {
		all = append(all, s.workflows[of].Workflow)
	}
	return page(newQuery(r), all)
}

func (s *Server) deleteWorkflow(r *http.Request, values []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.workflow(r, values[0])
	if err != nil {
		return nil, err
	}
	s.setHeld(w, active)
	delete(s.workflows, values[0])
	s.inherit(values[0])
	return reply{status: http.StatusNoContent}, nil
}

// settings are what the tenant's operator sets.
type settings struct {
	FallbackTimezone *string `json:"fallback_timezone"`
}

func (s *Server) getSettings(*http.Request, []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings(), nil
}

func (s *Server) settings() settings {
	if s.fallback == "" {
		return settings{}
	}
	return settings{&s.fallback}
}

func (s *Server) patchSettings(r *http.Request, _ []string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.settings()
	if err := read(r, &p); err != nil {
		return nil, err
	}
	if p.FallbackTimezone != nil {
		if err := checkZone("/fallback_timezone", *p.FallbackTimezone); err != nil {
			return nil, err
		}
	}
	s.fallback = text(p.FallbackTimezone)
	for _, h := range s.byName() {
		h.retimeFollower()
	}
	return s.settings(), nil
}
