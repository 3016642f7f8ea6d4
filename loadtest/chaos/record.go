package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// record is what the API shows of a run after its end.
type record struct {
	began  time.Time
	judged time.Time // nominal times up to here are checked
	ticks  map[name][]*tick
	stored map[name]stored
	audit  map[name][]audited
	late   time.Duration // how long the backlog took to drain
	left   []string      // what did not drain
}

// audited is a row of the audit about a schedule.
type audited struct {
	Action string `json:"action"`
	Target string `json:"target"`
	After  *struct {
		Version int64 `json:"version"`
	} `json:"after"`
}

// drainWithin bounds how long a healed lab takes to end all due ticks. A retry waits for up to 40 s, and the machine may be busy.
const drainWithin = 5 * time.Minute

// drain waits until all ticks that were due by a moment are handed out and have ended.
func (l *Lab) drain(ctx context.Context, clients []*client, rec *record, within time.Duration) error {
	began, said := time.Now(), time.Now()
	for {
		left, err := l.left(ctx, clients, rec)
		if err != nil {
			return err
		}
		rec.late, rec.left = time.Since(began), left
		if len(left) == 0 || rec.late > within {
			return nil
		}
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			l.say("%d are left after %s: %s", len(left), rec.late.Round(time.Second), left[0])
		}
		if !sleep(ctx, 2*time.Second) {
			return ctx.Err()
		}
	}
}

// left returns what has not ended. A tick is part of its schedule, then of a chunk, and then of the record, where it may be scheduled
// again for a retry. They are read in this order, so that a tick that goes on meanwhile is seen at least once.
func (l *Lab) left(ctx context.Context, clients []*client, rec *record) (left []string, err error) {
	for _, c := range clients {
		query := url.Values{"due_before": {rec.judged.UTC().Truncate(time.Second).Add(time.Second).Format(time.RFC3339)}} // up to the end of that second
		overdue, err := all[stored](ctx, c, "/v1/schedules", query)
		if err != nil {
			return nil, err
		}
		for _, s := range overdue {
			left = append(left, fmt.Sprintf("%s: %s %q is due since %v", c.tenant, s.Workflow, s.Key, s.NextAt))
		}
	}
	unopened, err := l.unopened(ctx, rec.judged)
	if err != nil {
		return nil, err
	}
	left = append(left, unopened...)
	for _, c := range clients {
		for _, state := range []string{"scheduled", "running", "scheduled"} {
			ticks, err := all[tick](ctx, c, "/v1/ticks", rec.span(url.Values{"state": {state}}))
			if err != nil {
				return nil, err
			}
			for _, t := range ticks {
				left = append(left, fmt.Sprintf("%s: %s %q at %s is %s in attempt %d (%s)", c.tenant, t.Workflow, t.Key, t.Timestamp, t.State, t.Attempt, t.TickID))
			}
		}
	}
	return left, nil
}

// unopened returns the chunks that are swept and not open, and the runs with jitter that are under way. The API shows neither of them as due.
func (l *Lab) unopened(ctx context.Context, judged time.Time) ([]string, error) {
	conn, err := pgx.Connect(ctx, l.database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, _ := conn.Query(ctx, `
		SELECT format('chunk %s of %s is not opened', c.id, c.nominal_at)
		FROM chunk c
		JOIN tenant t ON t.id = c.tenant_id
		WHERE c.opened_at IS NULL AND c.nominal_at <= $1 AND t.name <> $2
		UNION ALL
		SELECT format('timing %s has members that its run of %s comes to later', c.id, c.run_at)
		FROM cohort c
		JOIN tenant t ON t.id = c.tenant_id
		WHERE c.run_at <= $1 AND t.name <> $2`, judged, poisoned) // CollectRows reports the error
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// span adds the range of checked nominal times to a query.
func (r *record) span(query url.Values) url.Values {
	query.Set("from", r.began.UTC().Truncate(time.Second).Format(time.RFC3339))
	query.Set("to", r.judged.UTC().Truncate(time.Second).Add(time.Second).Format(time.RFC3339))
	return query
}

// read reads everything that the checker needs.
func (r *record) read(ctx context.Context, clients []*client) error {
	r.ticks, r.stored, r.audit = map[name][]*tick{}, map[name]stored{}, map[name][]audited{}
	for _, c := range clients {
		ticks, err := all[tick](ctx, c, "/v1/ticks", r.span(url.Values{}))
		if err != nil {
			return err
		}
		for _, t := range ticks {
			r.ticks[t.name(c.tenant)] = append(r.ticks[t.name(c.tenant)], &t)
		}
		schedules, err := all[stored](ctx, c, "/v1/schedules", url.Values{})
		if err != nil {
			return err
		}
		for _, s := range schedules {
			r.stored[name{c.tenant, s.Workflow, s.Key}] = s
		}
		rows, err := all[audited](ctx, c, "/v1/admin/audit", url.Values{})
		if err != nil {
			return err
		}
		for _, a := range rows {
			if n, ok := a.about(c.tenant); ok {
				r.audit[n] = append(r.audit[n], a)
			}
		}
	}
	for _, ticks := range r.ticks {
		slices.SortFunc(ticks, func(a, b *tick) int { return a.Timestamp.Compare(b.Timestamp) })
	}
	return nil
}

// about parses a target such as workflows/w/schedules/k.
func (a audited) about(tenant string) (name, bool) {
	parts := strings.Split(a.Target, "/")
	if len(parts) != 4 || parts[0] != "workflows" || parts[2] != "schedules" || !strings.HasPrefix(a.Action, "schedule.") {
		return name{}, false
	}
	key, err := url.PathUnescape(parts[3])
	return name{tenant, parts[1], key}, err == nil
}

// owner is the content of each payload that the lab writes.
type owner struct {
	Tenant string `json:"tenant"`
	Key    string `json:"key"`
}

func (t *tick) owner() (o owner) {
	_ = json.Unmarshal(t.Payload, &o) // another payload has no owner
	return o
}
