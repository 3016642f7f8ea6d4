package carillon

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Admin reads and changes what concerns the whole tenant. Reading needs the scope tenant:read, and changes need tenant:admin.
type Admin struct{ c *Client }

// Firing says whether the tenant's schedules fire.
type Firing struct {
	HaltedAt *time.Time `json:"halted_at"` // since when nothing fires; nil: all do
	Note     string     `json:"note"`
}

// HaltParams are the options of Halt.
type HaltParams struct {
	Note string `json:"note,omitempty"` // why
}

// Halt stops all firing of the tenant until Continue. Due ticks are recorded as skipped meanwhile; ticks that were handed out go on.
func (a Admin) Halt(ctx context.Context, p HaltParams) (Firing, error) {
	return send[Firing](ctx, a.c, &call{method: http.MethodPost, path: path("admin", "halt")}, p)
}

// Continue ends a halt. Ticks that came due during it follow the missed policy of their schedule.
func (a Admin) Continue(ctx context.Context) (Firing, error) {
	return read[Firing](ctx, a.c, &call{method: http.MethodPost, path: path("admin", "continue")})
}

// Settings are what the tenant's operator set for all schedules.
type Settings struct {
	FallbackTimezone string     `json:"fallback_timezone"`   // the IANA zone of subjects without a profile; empty: none
	Operation        *Operation `json:"operation,omitempty"` // not nil: it retimes the schedules that a change concerns

	ETag string `json:"-"` // the version, for SettingsPatch
}

// SettingsPatch is a change of the settings.
type SettingsPatch struct {
	Merge   any    // a merge patch (RFC 7396) of Settings, such as a map[string]any
	IfMatch string // if not empty, the ETag that must be the stored one
}

// Settings returns the settings of the tenant.
func (a Admin) Settings(ctx context.Context) (Settings, error) {
	r := &call{method: http.MethodGet, path: path("admin", "settings")}
	s, err := read[Settings](ctx, a.c, r)
	s.ETag = r.etag
	return s, err
}

// PatchSettings changes the settings of the tenant.
func (a Admin) PatchSettings(ctx context.Context, p SettingsPatch) (Settings, error) {
	r := &call{method: http.MethodPatch, path: path("admin", "settings"), header: ifETag(p.IfMatch), once: p.IfMatch != ""}
	if p.Merge == nil {
		p.Merge = struct{}{}
	}
	s, err := send[Settings](ctx, a.c, r, p.Merge)
	s.ETag = r.etag
	return s, err
}

// ifETag returns the precondition of a resource that names its version only in its ETag.
func ifETag(tag string) map[string]string {
	if tag == "" {
		return nil
	}
	return map[string]string{"If-Match": tag}
}

// Quotas returns the limits of the tenant and their use, by name.
func (a Admin) Quotas(ctx context.Context) (map[string]QuotaUse, error) {
	answer, err := get[struct {
		Quotas map[string]QuotaUse `json:"quotas"`
	}](ctx, a.c, path("quotas"), nil)
	return answer.Quotas, err
}

// Use is what the tenant used on a day of UTC.
type Use struct {
	Day       string `json:"day"`                // "2027-01-01"
	Workflow  string `json:"workflow,omitempty"` // empty: all workflows
	Ticks     int64  `json:"ticks"`              // recorded on that day, whatever their cause
	Succeeded int64  `json:"succeeded"`          // ticks that ended in this state on that day; the next three count alike
	Failed    int64  `json:"failed"`
	Cancelled int64  `json:"cancelled"`
	Skipped   int64  `json:"skipped"`
	Missed    int64  `json:"missed"` // nominal times that ticks recorded on that day stand for
}

// UseFilter selects the days of Usage; the zero value selects all.
type UseFilter struct {
	From, To string // the first and the last day, "2027-01-01"
	Workflow string
	ByDay    bool // one item a day for all workflows together
	PageSize int  // items per request, up to 1,000; zero is the server's default
}

// Usage iterates over what the tenant used, newest day first, and within a day by workflow. An error comes once and ends the loop.
func (a Admin) Usage(ctx context.Context, f UseFilter) iter.Seq2[Use, error] {
	q := query{}
	q.text("from", f.From)
	q.text("to", f.To)
	q.text("workflow", f.Workflow)
	if f.ByDay {
		q.text("by", "day")
	}
	q.number("limit", f.PageSize)
	return pages[Use](ctx, a.c, path("usage"), url.Values(q))
}
