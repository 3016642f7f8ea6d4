package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	healthFresh = 12 * time.Second // older rows say nothing of what is under way
	// HealthKept is how long the health of an endpoint is kept after the last request to it.
	HealthKept = time.Hour
)

// writeHealth writes each second the health of endpoints to which requests have ended, until ctx ends, so that any process can add it up.
func (p *Pusher) writeHealth(ctx context.Context) {
	loop.Every(ctx, p.log.Logger, time.Second, "write the health of endpoints", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		id, alive := p.member.Self()
		if !alive {
			return nil
		}
		now := time.Now()
		rows := p.sender.requests.health.due(now, p.sender.loads(now))
		if len(rows) == 0 {
			return nil
		}
		at, err := replaceHealth(ctx, p.pool, id, rows)
		if err == nil {
			p.sender.requests.health.wrote(rows, storedAt{at, id})
		}
		return err
	})
}

// replaceHealth inserts rows of a process, deletes those that they replace, and returns the time of the new rows. An update would read
// each dead row of the endpoint and the process while an old snapshot is open.
func replaceHealth(ctx context.Context, pool *pgxpool.Pool, id int64, rows []healthRow) (at time.Time, err error) {
	var owners, queued, inFlight []int32
	var names, breakers, minutes, last []string
	var until []*time.Time
	var before []time.Time
	var by []int64
	for _, r := range rows {
		m, err := json.Marshal(r.minutes)
		if err != nil {
			return at, err
		}
		l, err := json.Marshal(r.last)
		if err != nil {
			return at, err
		}
		owners, names, breakers, until = append(owners, int32(r.name.Tenant)), append(names, r.name.Name), append(breakers, r.load.breaker), append(until, r.load.openUntil)
		queued, inFlight, minutes, last = append(queued, int32(r.load.queued)), append(inFlight, int32(r.load.inFlight)), append(minutes, string(m)), append(last, string(l))
		before, by = append(before, r.stored.at), append(by, r.stored.by)
	}
	err = pool.QueryRow(ctx, `
		WITH clock AS MATERIALIZED (
			SELECT `+postgres.Now+` AS at
		), gone AS (
			DELETE FROM endpoint_health
			WHERE ctid = ANY (ARRAY (
				SELECT h.place
				FROM unnest($2::int[], $3::text[], $10::timestamptz[], $11::bigint[]) AS n (tenant_id, endpoint, at, process_id)
				CROSS JOIN LATERAL (
					SELECT ctid AS place
					FROM endpoint_health
					WHERE tenant_id = n.tenant_id AND endpoint = n.endpoint AND at = n.at AND process_id = n.process_id
					OFFSET 0
				) h))
		), added AS (
			INSERT INTO endpoint_health (tenant_id, endpoint, process_id, at, breaker, open_until, queued, in_flight, minutes, last)
			SELECT tenant_id, endpoint, $1, clock.at, breaker, open_until, queued, in_flight, minutes, last
			FROM clock
			CROSS JOIN unnest($2::int[], $3::text[], $4::text[], $5::timestamptz[], $6::int[], $7::int[], $8::json[], $9::json[])
				AS n (tenant_id, endpoint, breaker, open_until, queued, in_flight, minutes, last)
		)
		SELECT at FROM clock`, id, owners, names, breakers, until, queued, inFlight, minutes, last, before, by).Scan(&at)
	return at, err
}

// Health is how an endpoint has answered lately, over all processes: a process that died lacks at most its last second. A minute counts
// requests; the times are the upper bounds of the buckets in which they lie.
type Health struct {
	State     string         `json:"state"`
	Breaker   string         `json:"breaker"`
	OpenUntil *time.Time     `json:"open_until,omitempty"`
	Queued    int64          `json:"queued"`    // ticks that wait for a request
	InFlight  int64          `json:"in_flight"` // requests
	Minutes   []HealthMinute `json:"minutes"`   // of the last quarter of an hour, the oldest first; none without a request
	Last      []Answered     `json:"last"`      // the newest first
}

// HealthMinute counts the requests that ended within a minute.
type HealthMinute struct {
	At        time.Time `json:"at"`
	Succeeded int64     `json:"succeeded"`
	Failed    int64     `json:"failed"`
	P50MS     int64     `json:"p50_ms"`
	P99MS     int64     `json:"p99_ms"`
}

// storedHealth is what one process has written.
type storedHealth struct {
	Breaker   string
	OpenUntil *time.Time
	Queued    int64
	InFlight  int64
	Minutes   []byte
	Last      []byte
	Fresh     bool
}

// Health returns how an endpoint has answered lately.
func (es *Endpoints) Health(ctx context.Context, tenant tenants.ID, name string) (out Health, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	var now time.Time
	err = es.api.QueryRow(ctx, `SELECT state, `+postgres.Now+` FROM endpoint WHERE tenant_id = $1 AND name = $2`, tenant, name).Scan(&out.State, &now)
	if errors.Is(err, pgx.ErrNoRows) {
		return out, noEndpoint(name)
	}
	if err != nil {
		return out, fmt.Errorf("read endpoint: %w", err)
	}
	rows, _ := es.api.Query(ctx, `
		SELECT DISTINCT ON (process_id) breaker, open_until, queued::bigint AS queued, in_flight::bigint AS in_flight, minutes, last,
			at > `+postgres.Now+` - $3::interval AS fresh
		FROM endpoint_health
		WHERE tenant_id = $1 AND endpoint = $2 AND at > (SELECT `+postgres.Now+`) - $4::interval
		ORDER BY process_id, at DESC`, tenant, name, healthFresh, HealthKept) // CollectRows reports the error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[storedHealth])
	if err != nil {
		return out, fmt.Errorf("read the health of an endpoint: %w", err)
	}
	out.Breaker, out.Minutes, out.Last = breakerClosed, []HealthMinute{}, []Answered{}
	minutes := map[int64]*healthMinute{}
	for _, s := range all {
		if s.Fresh {
			out.add(s)
		}
		if err := addMinutes(minutes, s.Minutes, now.Unix()/60-healthMinutes); err != nil {
			return out, err
		}
		var last []Answered
		if err := json.Unmarshal(s.Last, &last); err != nil {
			return out, fmt.Errorf("read the last answers of an endpoint: %w", err)
		}
		out.Last = append(out.Last, last...)
	}
	slices.SortFunc(out.Last, func(a, b Answered) int { return b.At.Compare(a.At) })
	out.Last = out.Last[:min(len(out.Last), healthLast)]
	for _, m := range minutes {
		out.Minutes = append(out.Minutes, HealthMinute{
			At: time.Unix(m.At*60, 0).UTC(), Succeeded: m.Succeeded, Failed: m.Failed, P50MS: m.percentile(50), P99MS: m.percentile(99),
		})
	}
	slices.SortFunc(out.Minutes, func(a, b HealthMinute) int { return a.At.Compare(b.At) })
	return out, nil
}

// add adds what one process has under way. A breaker that is open in one process is shown as open.
func (h *Health) add(s storedHealth) {
	h.Queued, h.InFlight = h.Queued+s.Queued, h.InFlight+s.InFlight
	if slices.Index(breakerStates, s.Breaker) > slices.Index(breakerStates, h.Breaker) {
		h.Breaker = s.Breaker
	}
	if s.OpenUntil != nil && (h.OpenUntil == nil || s.OpenUntil.After(*h.OpenUntil)) {
		h.OpenUntil = new(s.OpenUntil.UTC())
	}
}

// addMinutes adds the minutes that one process has written, after a minute.
func addMinutes(sum map[int64]*healthMinute, written []byte, after int64) error {
	var list []healthMinute
	if err := json.Unmarshal(written, &list); err != nil {
		return fmt.Errorf("read the minutes of an endpoint: %w", err)
	}
	for _, m := range list {
		if m.At <= after {
			continue
		}
		if sum[m.At] == nil {
			sum[m.At] = &healthMinute{At: m.At}
		}
		s := sum[m.At]
		s.Succeeded, s.Failed = s.Succeeded+m.Succeeded, s.Failed+m.Failed
		for i, n := range m.Took {
			s.Took[i] += n
		}
	}
	return nil
}

// percentile returns the upper bound of the bucket in which a percentile of the times lies. Times beyond the last bound count as it.
func (m *healthMinute) percentile(p int64) int64 {
	var sum, at int64
	for _, n := range m.Took {
		sum += n
	}
	for i, n := range m.Took {
		if at += n; at*100 >= sum*p && at > 0 {
			return healthBounds[min(i, len(healthBounds)-1)]
		}
	}
	return 0
}
