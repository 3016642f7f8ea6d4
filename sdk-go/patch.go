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
func (c *Client) Patch(ctx context.Context, workflow, key string, p PatchParams) (Schedule, error) {
	body, err := raw(p.Merge)
	if err != nil {
		return Schedule{}, err
	}
	if body == nil {
		body = []byte("{}")
	}
	r := &call{method: http.MethodPatch, path: schedulePath(workflow, key), body: body, header: ifMatch(p.IfMatch)}
	r.once = r.header != nil
	return read[Schedule](ctx, c, r)
}
