package cli

import (
	"context"
	"net/url"
	"strings"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// globalKey is the key of a schedule that is named by its workflow only.
const globalKey = "global"

// target is one schedule.
type target struct{ workflow, key string }

// targetOf splits WORKFLOW/KEY at the first slash, because names of workflows contain none. Without a slash the key is global.
func targetOf(text string) (target, error) {
	workflow, key, found := strings.Cut(text, "/")
	if !found {
		key = globalKey
	}
	if workflow == "" || key == "" {
		return target{}, exit.Misused("%q is not WORKFLOW/KEY", text)
	}
	return target{workflow, key}, nil
}

func (t target) String() string { return t.workflow + "/" + t.key }

// path returns the path of the schedule in the API, or of something below it.
func (t target) path(below ...string) string {
	return api.Path(append([]string{"v1", "workflows", t.workflow, "schedules", t.key}, below...)...)
}

// members returns the target for an answer that has no body.
func (t target) members(result string) map[string]any {
	return map[string]any{"result": result, "workflow": t.workflow, "key": t.key}
}

// Completions that ask the server.
var (
	workflowNames = command.Names("/v1/workflows", "", "name")
	endpointNames = command.Names("/v1/endpoints", "", "name")
	calendarNames = command.Names("/v1/calendars", "", "name")
	subjectNames  = command.Names("/v1/subjects", "subject_prefix", "subject")
)

// scheduleNames completes first the workflow, and after the slash the key by its prefix.
func scheduleNames(ctx context.Context, s *command.Session, typed string) []string {
	workflow, key, inKey := strings.Cut(typed, "/")
	if !inKey {
		names := workflowNames(ctx, s, typed)
		for i := range names {
			names[i] += "/"
		}
		return names
	}
	query := url.Values{"workflow": {workflow}, "fields": {"summary"}, "limit": {"100"}}
	if key != "" {
		query.Set("key_prefix", key)
	}
	return s.Candidates(ctx, "/v1/schedules", query, func(o output.Object) string { return workflow + "/" + o.At("key").String() })
}
