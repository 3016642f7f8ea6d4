package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
)

// Sample is a coming tick as it would be sent at its time, by the present definition of its schedule. Headers are those of the push; they
// are empty if workers pull the tick. The signature, the lease token and the values of the endpoint's own headers are replaced by words,
// because a reader of schedules must not be able to send a tick.
type Sample struct {
	Body    web.Raw           `json:"body"`
	Headers map[string]string `json:"headers"`
}

// hidden stands for a value that a sample does not show.
const hidden = "(not shown)"

// sampled is a schedule of which a sample is made, with the workflow that it belongs to.
type sampled struct {
	ID          int64
	Shard       int16
	Version     int32
	CohortID    *int64
	UntilAt     *time.Time
	Subject     *string
	Labels      *string
	Payload     *string
	MaxAttempts *int16
	Timeout     *int32
	Defaults    []byte
	Registered  *string
	Endpoint    *string
	LastAt      *time.Time
	Occurrence  int64
	Skips       []time.Time
	Now         time.Time
}

// Sample returns the next tick of a schedule, or the one at a nominal time, as it would be sent. Nothing fires. The zero time asks for the
// next tick.
func (es *Endpoints) Sample(ctx context.Context, of policy.Name, at time.Time) (Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	s, err := es.readSampled(ctx, of)
	if err != nil {
		return Sample{}, err
	}
	t := &record.Tick{ScheduleID: s.ID, Shard: s.Shard, Version: s.Version, CohortID: s.CohortID, UntilAt: s.UntilAt, Attempt: 1, Cause: record.BySchedule, LastAt: s.LastAt}
	timings, _, err := es.messages.TimingsOf(ctx, es.api, of.Tenant, []*record.Tick{t})
	if err != nil {
		return Sample{}, err
	}
	if err := s.place(t, timings[0], at); err != nil {
		return Sample{}, err
	}
	terms, err := policy.Resolve(policy.Stored{MaxAttempts: s.MaxAttempts, Timeout: s.Timeout}, s.Defaults)
	if err != nil {
		return Sample{}, err
	}
	m := message.Message{
		Tick: t, Workflow: of.Workflow, MaxAttempts: int16(terms.MaxAttempts), Timeout: terms.Timeout, Token: hidden,
		Content: record.Content{Key: of.Key, Subject: s.Subject, Labels: s.Labels, Payload: s.Payload},
	}
	if s.Registered != nil {
		m.WorkflowVersion = *s.Registered
	}
	m = es.messages.Complete(m, timings[0])
	if s.Endpoint == nil {
		return Sample{Body: m.AppendJSON(nil), Headers: map[string]string{}}, nil
	}
	e, err := es.Pushable(ctx, of.Tenant, *s.Endpoint)
	if err != nil {
		return Sample{}, err
	}
	return sampleFor(e, &m), nil
}

func (es *Endpoints) readSampled(ctx context.Context, of policy.Name) (*sampled, error) {
	rows, _ := es.api.Query(ctx, `
		SELECT s.id, s.shard, s.version, s.cohort_id, `+record.UntilAt(postgres.Now)+` AS until_at, s.subject, s.labels::text AS labels, s.payload, s.max_attempts, s.timeout_s AS timeout,
			w.defaults, w.version AS registered, w.endpoint, st.last_at, st.occurrence::bigint AS occurrence, st.skips, `+postgres.Now+` AS now
		FROM schedule s
		JOIN schedule_state st ON st.tenant_id = s.tenant_id AND st.schedule_id = s.id
		LEFT JOIN workflow w ON w.tenant_id = s.tenant_id AND w.name = s.workflow
		WHERE s.tenant_id = $1 AND s.workflow = $2 AND s.key = $3`, of.Tenant, of.Workflow, of.Key) // CollectExactlyOneRow reports the error
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[sampled])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fault.NotFound("no schedule %q of workflow %q", of.Key, of.Workflow)
	}
	if err != nil {
		return nil, fmt.Errorf("read schedule: %w", err)
	}
	return s, nil
}

// place makes t the next tick of the schedule, or the one at a nominal time that is still to come.
func (s *sampled) place(t *record.Tick, timing *calendar.Timing, at time.Time) error {
	if timing == nil {
		return fault.Conflict("not_active", "the schedule's spec can no longer be computed: put another")
	}
	now := s.Now.UTC()
	if !at.IsZero() && !at.After(now) {
		return fault.Invalid("/at", "%s has passed; explain tells what came of it", at.Format(time.RFC3339))
	}
	seen := s.Occurrence
	for tick := range timing.All(now) {
		if slices.ContainsFunc(s.Skips, tick.At.Equal) {
			continue
		}
		seen++
		if at.IsZero() || tick.At.Equal(at) {
			t.NominalAt, t.FiredAt, t.DST, t.Occurrence = tick.At, tick.At, tick.DST, &seen
			return nil
		}
		if tick.At.After(at) || seen-s.Occurrence > mostSampled {
			return fault.Invalid("/at", "%s is not the time of one of the next %d ticks", at.Format(time.RFC3339), mostSampled)
		}
		t.LastAt = new(tick.At)
	}
	return fault.Conflict("not_active", "the schedule has no coming tick")
}

// mostSampled is how many ticks ahead a sample may be.
const mostSampled = 1000

// sampleFor returns the request that would be sent to an endpoint, at the time of the tick.
func sampleFor(e *Target, m *message.Message) Sample {
	body, id := m.AppendJSON(nil), m.ID
	if e.Batch > 1 {
		body, id = append(m.AppendJSON([]byte(`{"ticks":[`)), `]}`...), "batch_"+hidden
	}
	headers := map[string]string{}
	for name := range e.headers {
		headers[http.CanonicalHeaderKey(name)] = hidden
	}
	headers["Content-Type"], headers["User-Agent"] = "application/json", "carillon"
	headers["Webhook-Id"], headers["Webhook-Timestamp"], headers["Webhook-Signature"] = id, strconv.FormatInt(m.FiredAt.Unix(), 10), "v1,"+hidden
	headers["Traceparent"] = m.Context().String()
	return Sample{Body: body, Headers: headers}
}
