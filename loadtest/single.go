package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	singleSchedules = 20_000
	singleClients   = 32
)

// single puts the same schedules one by one from 32 clients, fresh and then with another payload. It compares both with one bare SQL
// statement that writes the same rows: on 32 connections, each in a transaction, with the same durability.
func single(ctx context.Context, o options, p *progress) (*report, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	_, at, end, err := openDev(ctx, o, p)
	if err != nil {
		return nil, err
	}
	defer end()
	transport := manyConnections()
	defer transport.CloseIdleConnections()
	client, err := carillon.New(carillon.Config{URL: at.URL, Token: at.Token, HTTPClient: httpClient(transport)})
	if err != nil {
		return nil, err
	}
	defer client.Close()

	n := o.scaled(singleSchedules)
	lines := make([]carillon.BulkLine, 0, n)
	for line := range upsertLines(n, 1, 8) {
		lines = append(lines, line)
	}
	put := func(ctx context.Context, _, i, version int) error {
		line := lines[i]
		line.Payload = payloadFor(i, version)
		_, err := client.Schedules.Put(ctx, line.Workflow, line.Key, line.Params)
		return err
	}
	bare, err := openBare(ctx, at.DatabaseURL, lines)
	if err != nil {
		return nil, fmt.Errorf("the bare statement: %w", err)
	}
	defer bare.close(ctx)

	r := &report{}
	r.figure("schedules", float64(n))
	r.figure("clients", singleClients)
	for _, stage := range []struct {
		name    string
		version int
	}{{"fresh", 1}, {"changed", 2}} {
		over, err := atOnce(ctx, n, func(ctx context.Context, client, i int) error { return put(ctx, client, i, stage.version) })
		if err != nil {
			return nil, fmt.Errorf("put %s: %w", stage.name, err)
		}
		p.say("%s: %.0f a second over HTTP", stage.name, over.perSecond())
		base, err := bare.putAll(ctx, n, stage.version)
		if err != nil {
			return nil, fmt.Errorf("the bare statement, %s: %w", stage.name, err)
		}
		p.say("%s: %.0f a second by the bare statement", stage.name, base.perSecond())
		r.figure(stage.name+"_per_second", over.perSecond())
		r.figure(stage.name+"_p50_ms", milliseconds(percentile(over.took, 0.5)))
		r.figure(stage.name+"_p99_ms", milliseconds(percentile(over.took, 0.99)))
		r.figure(stage.name+"_bare_per_second", base.perSecond())
		r.figure(stage.name+"_ratio", over.perSecond()/base.perSecond())
		r.atMost(stage.name+"_times_bare", base.perSecond()/over.perSecond(), 2)
	}
	return r, nil
}

func payloadFor(i, version int) map[string]any {
	return map[string]any{"user": i, "template": "daily-digest", "version": version, "address": fmt.Sprintf("user_%07d@example.com", i)}
}

// spent is the time of n calls, together and each.
type spent struct {
	all  time.Duration
	took []time.Duration
}

func (s spent) perSecond() float64 { return float64(len(s.took)) / s.all.Seconds() }

// atOnce makes n calls from all clients at once; each client makes one after the other.
func atOnce(ctx context.Context, n int, call func(ctx context.Context, client, i int) error) (s spent, err error) {
	s.took = make([]time.Duration, n)
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for client := range singleClients {
		group.Go(func() error {
			for i := client; i < n; i += singleClients {
				sent := time.Now()
				if err := call(ctx, client, i); err != nil {
					return err
				}
				s.took[i] = time.Since(sent)
			}
			return nil
		})
	}
	err = group.Wait()
	s.all = time.Since(began)
	return s, err
}

// bareStatement is an upsert written by hand: it writes the schedule, its state, its membership and its labels, or the version that it
// replaces.
const bareStatement = `
	WITH ended AS (
		INSERT INTO bare_revision (tenant_id, schedule_id, version, workflow, key, spec, payload, anchor_at, ended_at, ended_by, status, labels, changed_at, changed_by)
		SELECT tenant_id, id, version, workflow, key, spec, payload, anchor_at, now(), 'bare', status, labels, updated_at, updated_by
		FROM bare_schedule
		WHERE tenant_id = $1 AND workflow = $2 AND key = $3 AND (spec, payload, labels) IS DISTINCT FROM ($4, $5, $6::jsonb)
	), put AS (
		INSERT INTO bare_schedule AS s (tenant_id, workflow, key, shard, status, spec, payload, labels, anchor_at, cohort_id, tzdata, created_at, updated_at, updated_by)
		VALUES ($1, $2, $3, 0, 'active', $4, $5, $6, now(), 1, '2026f', now(), now(), 'bare')
		ON CONFLICT (tenant_id, workflow, key) DO UPDATE
		SET version = s.version + 1, spec = excluded.spec, payload = excluded.payload, labels = excluded.labels,
			updated_at = excluded.updated_at, updated_by = excluded.updated_by
		WHERE (s.spec, s.payload, s.labels) IS DISTINCT FROM (excluded.spec, excluded.payload, excluded.labels)
		RETURNING id, xmax = 0 AS made
	), state AS (
		INSERT INTO bare_schedule_state (tenant_id, schedule_id) SELECT $1, id FROM put WHERE made
	), joined AS (
		INSERT INTO bare_member (cohort_id, phase, schedule_id, tenant_id, from_at) SELECT 1, 0, id, $1, now() FROM put WHERE made
	), labelled AS (
		INSERT INTO bare_label (tenant_id, name, value, workflow, key)
		SELECT $1, l.key, l.value, $2, $3 FROM put, jsonb_each_text($6::jsonb) l WHERE made
	)
	SELECT id FROM put`

// bare has a connection for each client, and tables like ours.
type bare struct {
	conns []*pgx.Conn
	lines []carillon.BulkLine
}

func openBare(ctx context.Context, url string, lines []carillon.BulkLine) (_ *bare, err error) {
	b := &bare{lines: lines}
	defer func() {
		if err != nil {
			b.close(ctx)
		}
	}()
	for range singleClients {
		c, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		c.RuntimeParams["enable_seqscan"] = "off" // the planner has no statistics of new tables, and would sometimes read whole ones
		conn, err := pgx.ConnectConfig(ctx, c)
		if err != nil {
			return nil, err
		}
		b.conns = append(b.conns, conn)
	}
	for _, table := range []string{"schedule", "schedule_state", "member", "label", "revision"} {
		if _, err := b.conns[0].Exec(ctx, `CREATE TABLE bare_`+table+` (LIKE `+table+` INCLUDING ALL)`); err != nil {
			return nil, err
		}
	}
	_, err = b.conns[0].Exec(ctx, `ALTER TABLE bare_schedule ADD FOREIGN KEY (tenant_id) REFERENCES tenant`)
	return b, err
}

// putAll puts n schedules from all clients at once. Then it gives the planner statistics of the tables, as an operator's database has them.
func (b *bare) putAll(ctx context.Context, n, version int) (s spent, err error) {
	if s, err = atOnce(ctx, n, func(ctx context.Context, client, i int) error { return b.put(ctx, client, i, version) }); err != nil {
		return s, err
	}
	_, err = b.conns[0].Exec(ctx, `ANALYZE bare_schedule, bare_schedule_state, bare_member, bare_label, bare_revision`)
	return s, err
}

func (b *bare) put(ctx context.Context, client, i, version int) error {
	line := b.lines[i]
	spec, err := jsonText(line.Spec)
	if err != nil {
		return err
	}
	payload, err := jsonText(payloadFor(i, version))
	if err != nil {
		return err
	}
	var id int64
	err = b.conns[client].QueryRow(ctx, bareStatement, 1, line.Workflow, line.Key, spec, payload, line.Labels).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%s has not changed", line.Key)
	}
	return err
}

func (b *bare) close(ctx context.Context) {
	for _, conn := range b.conns {
		_ = conn.Close(ctx) // the process ends
	}
}
