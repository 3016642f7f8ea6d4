package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	operatorHolds = 10
	operatorFast  = 20 // schedules that fire every 5 s in the workflow that is held
	holdFor       = 15 * time.Second
	byHand        = 50 // schedules that others pause or resume during the bulk pause
)

// seedHold stores the schedules that fire every 5 s, and pauses some by hand.
func (op *operated) seedHold(ctx context.Context) error {
	for i := range operatorFast {
		p := carillon.Params{Spec: carillon.Spec{Intervals: []carillon.Interval{{Every: "5s"}}}}
		p.Policy.Overlap = "allow_all"
		if _, err := op.sdk.Schedules.Put(ctx, operatorMain, fmt.Sprint("every-", i), p); err != nil {
			return err
		}
	}
	for i := range byHand {
		if _, err := op.sdk.Schedules.Pause(ctx, operatorMain, readKey(i), carillon.PauseParams{}); err != nil {
			return err
		}
	}
	return nil
}

// holdAndRelease holds and releases the largest workflow. Schedules that fire every 5 s show that nothing is lost meanwhile.
func (op *operated) holdAndRelease(ctx context.Context) error {
	if err := op.seedHold(ctx); err != nil {
		return err
	}
	before, err := op.print(ctx)
	if err != nil {
		return err
	}
	if err := op.awaitTicks(ctx, "every-", 3); err != nil {
		return err
	}
	var holds, releases []time.Duration
	for i := range operatorHolds {
		began := time.Now()
		if _, err := op.sdk.Workflows.Hold(ctx, operatorMain); err != nil {
			return err
		}
		holds = append(holds, time.Since(began))
		if i == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(holdFor):
			}
		}
		began = time.Now()
		if _, err := op.sdk.Workflows.Release(ctx, operatorMain); err != nil {
			return err
		}
		releases = append(releases, time.Since(began))
	}
	if err := op.awaitTicks(ctx, "every-", 8); err != nil {
		return err
	}
	after, err := op.print(ctx)
	if err != nil {
		return err
	}
	lost, err := op.lostByHold(ctx)
	if err != nil {
		return err
	}
	op.r.atMost("hold_p99_ms", milliseconds(percentile(holds, 0.99)), operatorWithin)
	op.r.atMost("release_p99_ms", milliseconds(percentile(releases, 0.99)), operatorWithin)
	op.r.atMost("nominal_times_lost_by_a_hold", float64(lost), 0)
	op.r.atMost("schedules_changed_by_a_hold", float64(after.versions-before.versions+max(after.paused-before.paused, before.paused-after.paused)), 0)
	return nil
}

// lostByHold counts the nominal times of the fast schedules that no tick stands for.
func (op *operated) lostByHold(ctx context.Context) (lost int64, err error) {
	err = op.db.QueryRow(ctx, `
		SELECT COALESCE(sum(expected - came), 0)
		FROM (
			SELECT extract(epoch FROM max(nominal_at) - min(nominal_at))::int / 5 AS expected, sum(1 + missed_count) - (array_agg(1 + missed_count ORDER BY nominal_at))[1] AS came
			FROM tick t
			JOIN schedule s ON s.tenant_id = t.tenant_id AND s.id = t.schedule_id
			WHERE s.workflow = $1 AND s.key LIKE 'every-%' AND t.seq = 0
			GROUP BY s.id
		) one`, operatorMain).Scan(&lost)
	return lost, err
}

// printed is what a hold must not change.
type printed struct{ versions, paused int64 }

func (op *operated) print(ctx context.Context) (s printed, err error) {
	err = op.db.QueryRow(ctx, `SELECT sum(version), count(*) FILTER (WHERE status = 'paused') FROM schedule WHERE workflow = $1`, operatorMain).Scan(&s.versions, &s.paused)
	return s, err
}

// awaitTicks waits until each schedule whose key begins with a text has n ticks.
func (op *operated) awaitTicks(ctx context.Context, prefix string, n int) error {
	for range 600 {
		var least int
		if err := op.db.QueryRow(ctx, `
			SELECT min((SELECT count(*) FROM tick t WHERE t.tenant_id = s.tenant_id AND t.schedule_id = s.id))
			FROM schedule s
			WHERE s.tenant_id = (SELECT min(id) FROM tenant) AND s.workflow = $1 AND s.key LIKE $2`, operatorMain, prefix+"%").Scan(&least); err != nil {
			return err
		}
		if least >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("schedules %s… have fewer than %d ticks after a minute", prefix, n)
}

// pauseAndUndo pauses about a tenth of the schedules at once and undoes that. Schedules that were paused before, or that others resume
// and pause in between, must stay as these left them.
func (op *operated) pauseAndUndo(ctx context.Context) error {
	digits := len(fmt.Sprint(op.stored/10)) - 1 // that differ in the keys of the schedules that are paused
	prefix := strings.TrimSuffix(readKey(0), strings.Repeat("0", digits))
	filter := &carillon.ActionFilter{Workflow: operatorMain, KeyPrefix: prefix}
	paused, err := op.act(ctx, carillon.ActionParams{Action: "pause", Filter: filter, Note: "incident"}, op.interfere)
	if err != nil {
		return err
	}
	for i := byHand; i < 2*byHand; i++ { // the undo must leave these alone: somebody changed them after the bulk pause
		if _, err := op.sdk.Schedules.Resume(ctx, operatorMain, readKey(i), carillon.ResumeParams{}); err != nil {
			return err
		}
		if i%2 == 0 {
			if _, err := op.sdk.Schedules.Pause(ctx, operatorMain, readKey(i), carillon.PauseParams{}); err != nil {
				return err
			}
		}
	}
	undone, err := op.act(ctx, carillon.ActionParams{Action: "resume", Filter: &carillon.ActionFilter{Operation: paused.ID}}, nil)
	if err != nil {
		return err
	}
	var wrong, stillPaused int64
	if err := op.db.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE (status = 'paused') <> (n < $2 OR n < 2 * $2 AND n % 2 = 0 OR key LIKE $4)), count(*) FILTER (WHERE status = 'paused')
		FROM (
			SELECT status, key, CASE WHEN key LIKE 'user_%' THEN substr(key, 6)::int ELSE 1000000000 END AS n FROM schedule WHERE workflow = $1 AND (key LIKE $3 OR key LIKE $4)
		) s`, operatorMain, byHand, prefix+"%", meanwhile+"%").Scan(&wrong, &stillPaused); err != nil {
		return err
	}
	op.r.figure("bulk_paused", float64(paused.Counts["paused"]))
	op.r.figure("bulk_pause_seconds", paused.EndedAt.Sub(paused.CreatedAt).Seconds())
	op.r.figure("bulk_undo_seconds", undone.EndedAt.Sub(undone.CreatedAt).Seconds())
	op.r.figure("paused_by_hand_after_undo", float64(stillPaused))
	op.r.atMost("schedules_not_as_left_after_undo", float64(wrong), 0)
	return nil
}

// meanwhile begins the keys of schedules that are put and paused by hand while the bulk pause runs.
const meanwhile = "meanwhile-"

// interfere puts and pauses schedules by hand that the bulk pause does not pick.
func (op *operated) interfere(ctx context.Context) error {
	for i := range byHand {
		key := fmt.Sprint(meanwhile, i)
		if _, err := op.sdk.Schedules.Put(ctx, operatorMain, key, carillon.Params{Spec: carillon.Spec{Cron: carillon.Strings{"0 0 1 1 *"}}}); err != nil {
			return err
		}
		if _, err := op.sdk.Schedules.Pause(ctx, operatorMain, key, carillon.PauseParams{}); err != nil {
			return err
		}
	}
	return nil
}

// act begins a bulk action, does something meanwhile, and waits until the action has ended.
func (op *operated) act(ctx context.Context, a carillon.ActionParams, during func(context.Context) error) (one carillon.Operation, err error) {
	if one, err = op.sdk.Schedules.Act(ctx, a); err != nil {
		return one, err
	}
	if during != nil {
		if err := during(ctx); err != nil {
			return one, err
		}
	}
	for one.EndedAt == nil {
		select {
		case <-ctx.Done():
			return one, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if one, err = op.sdk.Operations.Get(ctx, one.ID); err != nil {
			return one, err
		}
	}
	if one.State != "succeeded" {
		return one, fmt.Errorf("the operation %s ended as %s: %+v", a.Action, one.State, one)
	}
	op.p.say("%s: %v", a.Action, one.Counts)
	return one, nil
}
