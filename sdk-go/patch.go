package carillon

import (
	"context"
	"net/http"
)

// PatchParams define a change of a schedule.
type PatchParams struct {
	// Merge is a merge patch (RFC 7396) of the members of Params, such as a map[string]any or a json.RawMessage. Absent members stay
	// unchanged, and null restores the default.
	Merge any

	IfMatch int64 // if not zero, the version that must be the stored one
}

// Patch changes parts of an existing schedule. A patch that changes nothing keeps the version.
func (s Schedules) Patch(ctx context.Context, workflow, key string, p PatchParams) (Schedule, error) {
	return patch[Schedule](ctx, s.c, schedulePath(workflow, key), p.Merge, ifMatch(p.IfMatch))
}

// patch sends a merge patch. A nil merge changes nothing.
func patch[T any](ctx context.Context, c *Client, path string, merge any, condition map[string]string) (T, error) {
	if merge == nil {
		merge = struct{}{}
	}
	return change[T](ctx, c, http.MethodPatch, path, merge, condition)
}
