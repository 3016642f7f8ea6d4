package schedules

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/carillonhq/carillon/internal/instant"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// audited is a schedule as the audit tells it: its definition without the payload, and what else a client may change.
type audited struct {
	Version     int32             `json:"version"`
	Status      string            `json:"status"`
	Spec        json.RawMessage   `json:"spec"`
	Policy      policy.Policy     `json:"policy"`
	Delivery    policy.Delivery   `json:"delivery"`
	Labels      map[string]string `json:"labels,omitempty"`
	Note        *string           `json:"note,omitempty"`
	PausedUntil *time.Time        `json:"paused_until,omitempty"`
	Skips       []time.Time       `json:"skips,omitempty"`
	Moves       []cohorts.Moved   `json:"moves,omitempty"`
}

func (r *row) audited() *audited {
	a := &audited{
		Version: r.Version, Status: r.Status, Spec: json.RawMessage(r.Spec), Labels: r.Labels, Note: r.Note,
		PausedUntil: instant.UTC(r.PausedUntil), Skips: r.Skips, Moves: r.Moves,
	}
	a.Policy, a.Delivery = r.Stored.Stated()
	return a
}

// audit is a change of the schedule: before and after may be nil.
func (r *row) audit(action string, before, after *audited) tenants.Change {
	c := tenants.Change{Action: "schedule." + action, Target: Target(r.Workflow, r.Key), Key: r.Key}
	if before != nil {
		c.Before = before
	}
	if after != nil {
		c.After = after
	}
	return c
}

const auditTimeout = 10 * time.Second

// auditCall records what a call did that changed schedules in many transactions: once, with its counts, also where it was
// cut by ended, which is the error of the call.
func (s *Schedules) auditCall(ctx context.Context, c change, action string, counts any, changed int, ended error) error {
	if changed == 0 {
		return ended
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditTimeout)
	defer cancel()
	err := tenants.Audit(ctx, s.Pool, c.tenant, c.by, tenants.Change{Action: "schedules." + action, Target: "schedules/" + action, After: counts})
	if ended != nil {
		return ended
	}
	return err
}

// Target is what the audit calls a schedule: its path, without /v1/.
func Target(workflow, key string) string {
	return "workflows/" + workflow + "/schedules/" + url.PathEscape(key)
}
