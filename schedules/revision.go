package schedules

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/instant"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Revision is one version of a schedule as it was put, who made it, and what that did to its next tick. Policy and
// delivery show what is the schedule's own; what was inherited is absent.
type Revision struct {
	Version  int32           `json:"version"`
	Status   string          `json:"status"`
	Subject  string          `json:"subject"`
	Spec     calendar.Spec   `json:"spec"`
	Policy   policy.Policy   `json:"policy"`
	Delivery policy.Delivery `json:"delivery"`
	Payload  web.Raw         `json:"payload"`

	PayloadKept *bool `json:"payload_kept,omitempty"` // false: there was a payload, which is not kept any more

	Labels     map[string]string `json:"labels"`
	Note       *string           `json:"note"`
	StatusNote *string           `json:"status_note,omitempty"`
	ChangedAt  time.Time         `json:"changed_at"`
	ChangedBy  string            `json:"changed_by"`
	NextBefore *time.Time        `json:"next_before"`
	NextAfter  *time.Time        `json:"next_after"`
	DeletedAt  *time.Time        `json:"deleted_at,omitempty"`
	DeletedBy  *string           `json:"deleted_by,omitempty"`
}

// LongRaws returns the values that may be long. A list writes them unchanged.
func (r *Revision) LongRaws() []*web.Raw { return []*web.Raw{&r.Payload} }

// revised is a version of a schedule as it is stored.
type revised struct {
	Version    int32
	Status     string
	Subject    string
	Spec       string
	Payload    *string
	Labels     map[string]string
	Note       *string
	StatusNote *string
	policy.Stored
	ChangedAt  time.Time
	ChangedBy  string
	NextBefore *time.Time
	NextAfter  *time.Time
	DeletedAt  *time.Time
	DeletedBy  *string

	PayloadKept bool
}

// shownVersion is revisedColumns with the subject that a client sees.
var shownVersion = strings.Replace(revisedColumns, "subject", "COALESCE(subject, key) AS subject", 1)

const revisedColumns = `version, status, subject, spec, payload, labels, note, status_note, ` + policy.Columns

// Revisions returns a page of a schedule's versions, newest first, and the cursor of the next page, if there is one. If there is no
// schedule of that name, it returns the versions of the last one that was deleted.
func (s *Schedules) Revisions(ctx context.Context, tenant tenants.ID, workflow, key string, limit int, cursor string) (page []Revision, next *string, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	var schedule *int64
	err = s.Pool.QueryRow(ctx, `
		SELECT COALESCE(
			(SELECT id FROM schedule WHERE tenant_id = $1 AND workflow = $2 AND key = $3),
			(SELECT max(schedule_id) FROM revision WHERE tenant_id = $1 AND workflow = $2 AND key = $3 AND deleted))`,
		tenant, workflow, key).Scan(&schedule)
	if err != nil {
		return nil, nil, fmt.Errorf("read schedule: %w", err)
	}
	if schedule == nil {
		return nil, nil, absent(workflow, key)
	}
	name := fmt.Sprintf("revisions %d", *schedule)
	before := int32(math.MaxInt32)
	paging, err := s.Cursors.Page(int32(tenant), name, limit, cursor, &before)
	if err != nil {
		return nil, nil, err
	}
	query := func() (pgx.Rows, error) {
		return s.Pool.Query(ctx, `
			SELECT `+shownVersion+`, updated_at AS changed_at, updated_by AS changed_by, next_before, next_after,
				NULL::timestamptz AS deleted_at, NULL::text AS deleted_by, true AS payload_kept
			FROM schedule
			WHERE tenant_id = $1 AND id = $2 AND version < $3
			UNION ALL
			SELECT `+shownVersion+`, changed_at, changed_by, next_before, next_after,
				CASE WHEN deleted THEN ended_at END, CASE WHEN deleted THEN ended_by END, payload_kept
			FROM revision
			WHERE tenant_id = $1 AND schedule_id = $2 AND version < $3
			ORDER BY version DESC
			LIMIT $4`, tenant, *schedule, before, paging.Rows())
	}
	found, full, err := web.Collect(ctx, paging.Rows(), web.MostPage, query, pgx.RowToAddrOfStructByName[revised], (*revised).held)
	if err != nil {
		return nil, nil, fmt.Errorf("list revisions: %w", err)
	}
	found, next, err = web.Cut(paging, found, full, func(r *revised) int32 { return r.Version })
	if err != nil {
		return nil, nil, err
	}
	page = make([]Revision, 0, len(found))
	for _, r := range found {
		one, err := r.revision()
		if err != nil {
			return nil, nil, err
		}
		page = append(page, one)
	}
	return page, next, nil
}

// held is how many bytes the long texts of a version have.
func (r *revised) held() int {
	n := len(r.Spec)
	if r.Payload != nil {
		n += len(*r.Payload)
	}
	return n
}

func (r *revised) revision() (Revision, error) {
	out := Revision{
		Version: r.Version, Status: r.Status, Subject: r.Subject, Labels: r.Labels, Note: r.Note, StatusNote: r.StatusNote,
		ChangedAt: r.ChangedAt.UTC(), ChangedBy: r.ChangedBy, NextBefore: instant.UTC(r.NextBefore), NextAfter: instant.UTC(r.NextAfter),
		DeletedAt: instant.UTC(r.DeletedAt), DeletedBy: r.DeletedBy,
	}
	if !r.PayloadKept {
		out.PayloadKept = new(bool)
	}
	out.Policy, out.Delivery = r.Stored.Stated()
	if r.Payload != nil {
		out.Payload = web.Raw(*r.Payload)
	}
	if err := json.Unmarshal([]byte(r.Spec), &out.Spec); err != nil {
		return out, fmt.Errorf("spec of version %d: %w", r.Version, err)
	}
	return out, nil
}

// coming returns the row's next tick after now; nil if there is none, or the timing cannot be computed.
func (r *row) coming(t *calendar.Timing, now time.Time) *time.Time {
	if t == nil {
		return nil
	}
	next, ok := r.nextAfter(t, now)
	if !ok {
		return nil
	}
	return &next
}

// endVersions keeps the stored versions of schedules as revisions: live ticks may name them. The transaction then counts the
// bytes of the versions that take their place.
const endVersions = `
	INSERT INTO revision (tenant_id, schedule_id, workflow, key, anchor_at, ` + revisedColumns + `,
		paused_until, changed_at, changed_by, next_before, next_after, deleted, ended_at, ended_by)
	SELECT tenant_id, id, workflow, key, anchor_at, ` + revisedColumns + `,
		paused_until, updated_at, updated_by, next_before, next_after, $3, $4, $5
	FROM schedule
	WHERE tenant_id = $1 AND id = ANY($2)`
