package command

import (
	"errors"
	"strings"
	"syscall"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
)

// remedyOf returns in one line what the user can do about a refusal; "" if there is no general advice.
func (s *Session) remedyOf(p *api.Problem) string {
	switch p.Code {
	case "unauthenticated", "invalid_token", "invalid_api_key":
		if s.Command.Name() == "login" {
			return "check the key, and that it is of this server"
		}
		if s.Server.From == "" {
			return "carillon login, or set CARILLON_API_KEY"
		}
		return "the credential comes from " + s.Server.From + ": carillon login stores another one"
	case "insufficient_scope":
		if strings.HasPrefix(s.Command.CommandPath(), "carillon platform") {
			return "these commands need a token of the operator of the service"
		}
		return "carillon whoami shows your scopes; the tenant's operator gives more with: carillon admin api-key make"
	case "workflow_not_allowed":
		return "carillon whoami shows the workflows of your credential"
	case "version_mismatch":
		return "somebody else changed it meanwhile: read it again, then repeat your change"
	case "quota_exceeded":
		return "carillon admin quotas shows limits and use"
	case "unknown_timezone":
		return "carillon zone list shows all zones"
	case "unknown_calendar":
		return "carillon calendar list shows the calendars"
	case "interval_too_small":
		return "carillon admin quotas shows the smallest interval"
	case "too_many_changes":
		return "look at it with --dry-run, then raise --max-change"
	case "outcome_unknown":
		return "look whether the change was made before you repeat it"
	case "rate_limited", "overloaded", "busy":
		return "try again later, or with a longer --timeout"
	}
	if p.Status == 404 {
		return s.remedyOfMissing()
	}
	return ""
}

// remedyOfMissing names the list in which the user can look for a name that does not exist.
func (s *Session) remedyOfMissing() string {
	words := strings.Fields(s.Command.CommandPath())
	if len(words) < 3 {
		return ""
	}
	parent := s.Command.Parent()
	for _, sibling := range parent.Commands() {
		if sibling.Name() == "list" && sibling != s.Command {
			return sibling.CommandPath() + " shows what exists"
		}
	}
	return ""
}

func (s *Session) remedyOfAway() string {
	if strings.HasPrefix(s.Server.URL, "http://127.0.0.1") || strings.HasPrefix(s.Server.URL, "http://localhost") {
		return "start a server with: carillon dev; or choose another one: carillon profile list"
	}
	return "is the URL right? carillon profile list shows it"
}

// isBrokenPipe reports whether the reader of our output has stopped reading, as head does.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
