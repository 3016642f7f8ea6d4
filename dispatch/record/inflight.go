package record

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Try names one attempt at one tick. Answer reports that the attempt is not to be sent: its worker should have answered by now.
type Try struct {
	ident.TickKey
	Attempt int16
	Answer  bool
}

// LeasedTicks counts the ticks in the live leases of tenant $1. It reads the clock once, so that the time is a bound of the index.
const LeasedTicks = `SELECT COALESCE(sum(unended), 0)::bigint FROM lease WHERE tenant_id = $1 AND until_at > (SELECT ` + postgres.Now + `)`

// Sendable is a tick that is under way, with what its schedule's version says of its delivery.
type Sendable struct {
	Tick
	Workflow string
	Content  Content
	Stated   policy.Stored
	Expired  bool // it is delivered although it is later than its max_lateness
}

// Content is what the message of a tick holds of its schedule's version. The payload is the tick's own if it has one.
type Content struct {
	Key     string
	Subject *string // nil: the key
	Labels  *string // a JSON object; nil: none
	Payload *string
}

// Held returns how many bytes the long texts of a sendable have.
func (s *Sendable) Held() int {
	if s.Content.Payload != nil {
		return s.Tick.Held() + len(*s.Content.Payload)
	}
	return s.Tick.Held()
}

// Sendables reads the ticks of the tries whose current attempt is that of the try and is under way. It leaves out the others.
func Sendables(ctx context.Context, db postgres.DB, tenant tenants.ID, tries []Try) (found []*Sendable, err error) {
	if len(tries) == 0 {
		return nil, nil
	}
	var b pgx.Batch
	QueueSendables(&b, tenant, tries, &found, nil)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return nil, fmt.Errorf("read ticks to send: %w", err)
	}
	return found, nil
}

// QueueSendables queues the read of Sendables. It looks for a revision only if the schedule has another version by now. If hold has no
// room for a tick, the batch fails, and found holds the ticks before that one.
func QueueSendables(b *pgx.Batch, tenant tenants.ID, tries []Try, found *[]*Sendable, hold *web.Hold) {
	var keys Keys
	for _, t := range tries {
		keys.Add(t.TickKey, t.Attempt)
	}
	*found = make([]*Sendable, 0, len(tries))
	b.Queue(sabotage.PayloadOfNow.Without(`
		SELECT `+Columns+`,
			COALESCE(s.workflow, r.workflow), COALESCE(s.key, r.key), CASE WHEN s.id IS NOT NULL THEN s.subject ELSE r.subject END,
			NULLIF(COALESCE(s.labels, r.labels), '{}')::text,
			COALESCE(t.payload, CASE WHEN s.id IS NOT NULL THEN s.payload ELSE r.payload END),
			COALESCE(s.queue, r.queue), COALESCE(s.priority, r.priority),
			COALESCE(s.timeout_s, r.timeout_s), COALESCE(s.max_attempts, r.max_attempts),
			COALESCE(s.max_lateness_s, r.max_lateness_s), COALESCE(s.on_expired, r.on_expired)
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
		JOIN `+TheTick+` ON t.state = $8 AND t.attempt = i.attempt
		LEFT JOIN LATERAL (SELECT * FROM schedule s WHERE s.tenant_id = $1 AND s.id = t.schedule_id AND s.version = t.version OFFSET 0) s ON true
		LEFT JOIN LATERAL (
			SELECT * FROM revision r WHERE s.id IS NULL AND r.tenant_id = $1 AND r.schedule_id = t.schedule_id AND r.version = t.version OFFSET 0
		) r ON true
		WHERE s.id IS NOT NULL OR r.version IS NOT NULL
		ORDER BY t.nominal_at, t.schedule_id, t.seq`, " AND s.version = t.version"),
		tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, keys.From, keys.Through, int16(Running)).Query(func(rows pgx.Rows) error {
		defer rows.Close()
		*found = (*found)[:0]
		for rows.Next() {
			s := &Sendable{}
			t := &s.Tick
			if err := rows.Scan(&t.ScheduleID, &t.NominalAt, &t.Seq, &t.Version, &t.MissedCount, &t.Occurrence, &t.CohortID, &t.ChunkID,
				&t.LastAt, &t.UntilAt, &t.FiredAt, &t.EndedAt, &t.Shard, &t.Attempt, &t.State, &t.Reason, &t.Cause, &t.DST, &t.StartedAt,
				&t.Payload, &t.Result, &t.Error, &t.ReplayedFrom, &t.Trace,
				&s.Workflow, &s.Content.Key, &s.Content.Subject, &s.Content.Labels, &s.Content.Payload, &s.Stated.Queue, &s.Stated.Priority, &s.Stated.Timeout, &s.Stated.MaxAttempts, &s.Stated.MaxLateness, &s.Stated.OnExpired); err != nil {
				return err
			}
			if err := hold.Take(s.Held()); err != nil {
				return err
			}
			*found = append(*found, s)
		}
		return rows.Err()
	})
}

// LateTo reports whether a tick that is delivered at a moment is later than its max_lateness, and is delivered all the same.
func (t *Tick) LateTo(at time.Time, terms policy.Terms) bool {
	return t.Cause != Backfill && t.ReplayedFrom == nil && terms.Late(t.NominalAt, at)
}

// Latest returns the last moment at which a tick may be delivered; expires is false if it may be delivered at any time.
func (s *Sendable) Latest(inherited policy.Terms) (at time.Time, expires bool) {
	at, expires = inherited.With(s.Stated).Latest(s.NominalAt)
	return at, expires && s.Cause != Backfill && s.ReplayedFrom == nil
}
