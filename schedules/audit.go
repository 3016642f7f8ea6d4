package schedules

import (
	"encoding/json"
	"time"

	"github.com/carillonhq/carillon/internal/instant"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// audited is a schedule as the audit shows it: its definition without the payload, and all else that a client may change.
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

// audit returns a change of the schedule for the audit. before and after may be nil.
func (r *row) audit(action string, before, after *audited) tenants.Change {
	c := tenants.Change{Action: "schedule." + action, Target: tenants.ScheduleTarget(r.Workflow, r.Key), Key: r.Key}
	if before != nil {
		c.Before = before
	}
	if after != nil {
		c.After = after
	}
	return c
}
