package carillontest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/carillonhq/carillon/internal/fault"
)

// handler answers a request. The values are the segments of the path that the route leaves open.
type handler func(s *Server, r *http.Request, values []string) (any, error)

// route is one operation of the API. A route without a handler is a feature that the package lacks.
type route struct {
	method, path string
	handle       handler
	tags         bool   // it evaluates If-Match and If-None-Match
	lacks        string // what the package lacks, for its refusal
}

const oneSchedule = "workflows/*/schedules/*"

// routes has the operations; an asterisk stands for one segment.
var routes = []route{
	{method: "PUT", path: oneSchedule, handle: (*Server).put, tags: true},
	{method: "GET", path: oneSchedule, handle: (*Server).get, tags: true},
	{method: "PATCH", path: oneSchedule, handle: (*Server).patch, tags: true},
	{method: "DELETE", path: oneSchedule, handle: (*Server).remove, tags: true},
	{method: "POST", path: oneSchedule + "/pause", handle: (*Server).pause, tags: true},
	{method: "POST", path: oneSchedule + "/resume", handle: (*Server).resume, tags: true},
	{method: "POST", path: oneSchedule + "/trigger", handle: (*Server).trigger, tags: true},
	{method: "POST", path: oneSchedule + "/skip", handle: (*Server).skip, tags: true},
	{method: "DELETE", path: oneSchedule + "/skip", handle: (*Server).unskip, tags: true},
	{method: "POST", path: oneSchedule + "/reschedule", handle: (*Server).reschedule, tags: true},
	{method: "GET", path: oneSchedule + "/upcoming", handle: (*Server).upcoming},
	{method: "GET", path: oneSchedule + "/ticks", handle: (*Server).history},
	{method: "GET", path: oneSchedule + "/explain", lacks: "explanations"},
	{method: "GET", path: oneSchedule + "/revisions", lacks: "revisions of schedules"},
	{method: "GET", path: oneSchedule + "/sample", lacks: "samples of ticks"},
	{method: "POST", path: oneSchedule + "/backfill", lacks: "backfills"},

	{method: "GET", path: "schedules", handle: (*Server).list},
	{method: "POST", path: "schedules/get", handle: (*Server).named},
	{method: "POST", path: "schedules/bulk", handle: (*Server).bulk},
	{method: "POST", path: "schedules/sync", handle: (*Server).sync},
	{method: "POST", path: "schedules/preview", handle: (*Server).preview},
	{method: "POST", path: "schedules/actions", lacks: "actions on many schedules"},
	{method: "GET", path: "schedules/export", lacks: "export of schedules"},
	{method: "GET", path: "schedules/*", handle: (*Server).byID},

	{method: "POST", path: "ticks/lease", handle: (*Server).lease},
	{method: "POST", path: "ticks/finish", handle: (*Server).finishMany},
	{method: "POST", path: "ticks/heartbeat", handle: (*Server).heartbeatMany},
	{method: "GET", path: "ticks", handle: (*Server).allTicks},
	{method: "GET", path: "ticks/tail", lacks: "live tail of ticks"},
	{method: "GET", path: "ticks/*", handle: (*Server).oneTick},
	{method: "POST", path: "ticks/*/heartbeat", handle: (*Server).heartbeat},
	{method: "POST", path: "ticks/*/complete", handle: (*Server).complete},
	{method: "POST", path: "ticks/*/fail", handle: (*Server).failTick},
	{method: "POST", path: "ticks/*/cancel", handle: (*Server).cancelTick},
	{method: "POST", path: "ticks/*/replay", handle: (*Server).replay},

	{method: "GET", path: "workflows", handle: (*Server).listWorkflows},
	{method: "GET", path: "workflows/*", handle: (*Server).getWorkflow, tags: true},
	{method: "PUT", path: "workflows/*", handle: (*Server).putWorkflow, tags: true},
	{method: "PATCH", path: "workflows/*", handle: (*Server).patchWorkflow, tags: true},
	{method: "DELETE", path: "workflows/*", handle: (*Server).deleteWorkflow, tags: true},
	{method: "POST", path: "workflows/*/hold", handle: (*Server).hold, tags: true},
	{method: "POST", path: "workflows/*/release", handle: (*Server).release, tags: true},

	{method: "GET", path: "subjects", handle: (*Server).listSubjects},
	{method: "GET", path: "subjects/*", handle: (*Server).getSubject, tags: true},
	{method: "PUT", path: "subjects/*", handle: (*Server).putSubject, tags: true},
	{method: "POST", path: "subjects/*/cancel", lacks: "cancellation of a subject"},
	{method: "POST", path: "subjects/*/rename", lacks: "renaming of subjects"},
	{method: "DELETE", path: "subjects/*", lacks: "erasure of subjects"},

	{method: "GET", path: "calendars", handle: (*Server).listCalendars},
	{method: "GET", path: "calendars/*", handle: (*Server).getCalendar, tags: true},
	{method: "PUT", path: "calendars/*", handle: (*Server).putCalendar, tags: true},
	{method: "DELETE", path: "calendars/*", handle: (*Server).deleteCalendar, tags: true},

	{method: "GET", path: "admin/settings", handle: (*Server).getSettings},
	{method: "PATCH", path: "admin/settings", handle: (*Server).patchSettings},
}

// lacking names what lies below a first segment whose routes the package has none or few of.
var lacking = map[string]string{
	"admin": "operator's routes but settings", "platform": "platform's routes", "endpoints": "endpoints: push to a handler with Server.Push",
	"operations": "operations", "zones": "list of zones", "subjects": "such route of subjects", "self": "route self", "quotas": "quotas", "usage": "usage",
	"token": "exchange of API keys", "schedules": "such route of schedules", "workflows": "such route of workflows", "calendars": "such route of calendars",
	"ticks": "such route of ticks",
}

// serve authenticates a request and passes it to its route.
func (s *Server) serve(r *http.Request) (any, error) {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		return nil, fault.New(http.StatusUnauthorized, "unauthorized", "the token is not carillontest.Token")
	}
	segments, err := decodedPath(r)
	if err != nil {
		return nil, err
	}
	for _, one := range routes {
		values, ok := one.match(r.Method, segments)
		if !ok {
			continue
		}
		if one.handle == nil {
			return nil, unsupported(one.lacks)
		}
		if err := one.checkTags(r); err != nil {
			return nil, err
		}
		return one.handle(s, r, values)
	}
	if feature, known := lacking[segments[0]]; known {
		return nil, unsupported(feature)
	}
	return nil, fault.NotFound("there is no route %s /v1/%s", r.Method, strings.Join(segments, "/"))
}

// match returns the values of the open segments of a path.
func (o route) match(method string, segments []string) (values []string, ok bool) {
	parts := strings.Split(o.path, "/")
	if o.method != method && (method != http.MethodHead || o.method != http.MethodGet) || len(parts) != len(segments) {
		return nil, false
	}
	for i, part := range parts {
		if part == "*" {
			values = append(values, segments[i])
		} else if part != segments[i] {
			return nil, false
		}
	}
	return values, true
}

// checkTags refuses preconditions that the route does not evaluate.
func (o route) checkTags(r *http.Request) error {
	if o.tags {
		return nil
	}
	headers := []string{"If-Match", "If-None-Match"}
	i := slices.IndexFunc(headers, func(header string) bool { return len(r.Header.Values(header)) > 0 })
	if i < 0 {
		return nil
	}
	return fault.Malformed("precondition_not_supported", "this route does not support %s: leave it out", headers[i])
}
