package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
)

// Attempt is an ended attempt at a tick.
type Attempt struct {
	Attempt   int16      `json:"attempt"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   time.Time  `json:"ended_at"`
	TookMS    *int64     `json:"took_ms"` // from its start to its end; nil if the start is not known
	Outcome   string     `json:"outcome"`
	Status    *int32     `json:"status,omitempty"`
	Answer    *string    `json:"answer,omitempty"` // the first mostAnswer bytes of a failing answer of an endpoint
	Error     *string    `json:"error,omitempty"`
	Worker    *string    `json:"worker,omitempty"`
	Result    web.Raw    `json:"result,omitempty"` // of a cancelled tick, if it came after the tick was told to stop
}

// lastAttempt returns the last attempt at a tick if table attempt has no row of it: one that succeeded, also if the tick was told to
// stop before its result came.
func lastAttempt(t *record.Tick) (a Attempt, unrecorded bool) {
	if t.State != record.Succeeded && (t.State != record.Cancelled || t.Result == nil) {
		return a, false
	}
	a = Attempt{Attempt: t.Attempt, EndedAt: t.EndedAt.UTC(), Outcome: t.State.String()}
	if t.State == record.Cancelled {
		a.Result = web.Raw(*t.Result)
	}
	return a, true
}

// mostAnswer is how many bytes of an endpoint's answer are shown.
const mostAnswer = 1024

// scanAttempt reads a row of table attempt.
func scanAttempt(row pgx.CollectableRow) (a Attempt, err error) {
	if err := row.Scan(&a.Attempt, &a.StartedAt, &a.EndedAt, &a.Outcome, &a.Status, &a.Error, &a.Worker); err != nil {
		return a, err
	}
	if a.StartedAt != nil {
		a.TookMS = new(max(0, a.EndedAt.Sub(*a.StartedAt).Milliseconds()))
	}
	if a.Status != nil && a.Error != nil {
		if answer, found := record.AnswerIn(*a.Error, *a.Status); found {
			a.Answer = new(record.Valid(answer[:min(len(answer), mostAnswer)]))
		}
	}
	return a, nil
}

// readPayload reads the payload with which a tick fired: its own, or that of the version of its schedule.
func (r *Reader) readPayload(ctx context.Context, tenant tenants.ID, t *record.Tick, out *Tick) error {
	if t.Payload != nil {
		out.Payload = web.Raw(*t.Payload)
		return nil
	}
	var payload *string
	var kept bool
	err := r.api.QueryRow(ctx, `
		SELECT payload, true FROM schedule WHERE tenant_id = $1 AND id = $2 AND version = $3
		UNION ALL
		SELECT payload, payload_kept FROM revision WHERE tenant_id = $1 AND schedule_id = $2 AND version = $3
		LIMIT 1`, tenant, t.ScheduleID, t.Version).Scan(&payload, &kept)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // erased
		return nil
	case err != nil:
		return fmt.Errorf("read the payload of a tick: %w", err)
	case payload != nil:
		out.Payload = web.Raw(*payload)
	case !kept:
		out.PayloadKept = new(false)
	}
	return nil
}
