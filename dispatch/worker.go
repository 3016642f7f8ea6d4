package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/tenants"
)

// Finish is how a worker ended one tick.
type Finish struct {
	TickID     string  `json:"tick_id" validate:"required"`
	LeaseToken string  `json:"lease_token" validate:"required"`
	Outcome    string  `json:"outcome"`
	Result     web.Raw `json:"result,omitempty"`
	Error      string  `json:"error,omitempty" empty:"yes"`
	Retry      *bool   `json:"retry,omitempty"`
	RetryAfter string  `json:"retry_after,omitempty"`
}

// FinishResult is what became of a Finish: 204; 404 where there is no such tick; 409 where the token is stale or foreign.
type FinishResult struct {
	TickID string `json:"tick_id"`
	Status int    `json:"status"`
	Code   string `json:"code,omitempty"`
}

const (
	codeNotFound  = "not_found"
	codeCancelled = "cancelled"
	codeLost      = "lease_lost"
)

// Finish ends ticks that workers hold. A token that is stale or foreign changes nothing.
func (d *Dispatch) Finish(ctx context.Context, tenant tenants.ID, items []Finish) ([]FinishResult, error) {
	endings, err := d.readFinishes(ctx, tenant, items)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var all []claimed
	err = postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, d.API, func(tx pgx.Tx) (err error) {
			ids, tokens := make([]string, len(items)), make([]string, len(items))
			for i, item := range items {
				ids[i], tokens[i] = item.TickID, item.LeaseToken
			}
			if all, err = d.claims(ctx, tx, tenant, ids, tokens); err != nil {
				return err
			}
			err = d.finish(ctx, tx, tenant, all, endings)
			sabotage.Crash("finish.before_commit")
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	sabotage.Crash("finish.committed")
	results := make([]FinishResult, len(items))
	for i, c := range all {
		results[i] = FinishResult{items[i].TickID, c.status, c.code}
	}
	return results, nil
}

func (d *Dispatch) finish(ctx context.Context, tx pgx.Tx, tenant tenants.ID, all []claimed, endings []ending) error {
	started, workers, _, now, err := standing(ctx, tx, tenant, all)
	if err != nil {
		return err
	}
	var valid []ending
	for i, c := range all {
		if c.status != 0 {
			continue
		}
		e := endings[i]
		e.TickKey, e.attempt, e.answered = c.TickKey, c.token.attempt, c.token.lease == 0
		if at, leased := started[c.token.lease]; leased {
			e.started, e.worker = &at, new(workers[c.token.lease])
		}
		valid = append(valid, e)
	}
	ended, err := d.end(ctx, tx, tenant, now, valid)
	if err != nil {
		return err
	}
	var stale keyArrays
	counts := map[int64]int32{}
	for i := range all {
		c := &all[i]
		if c.status != 0 {
			continue
		}
		if _, did := ended[c.TickKey]; !did {
			stale.add(c.TickKey, c.token.attempt)
			c.status, c.code = http.StatusConflict, codeLost
			continue
		}
		delete(ended, c.TickKey) // a second finish of the same tick in one request is stale
		c.status = http.StatusNoContent
		if c.token.lease != 0 {
			counts[c.token.lease]++
		}
	}
	if err := d.tellCancelled(ctx, tx, tenant, all, stale); err != nil {
		return err
	}
	return countDown(ctx, tx, tenant, counts)
}

// tellCancelled tells the workers of cancelled ticks so.
func (d *Dispatch) tellCancelled(ctx context.Context, tx pgx.Tx, tenant tenants.ID, all []claimed, stale keyArrays) error {
	if len(stale.ids) == 0 {
		return nil
	}
	states, err := tickStates(ctx, tx, tenant, stale)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].status == http.StatusConflict && states[all[i].TickKey] == Cancelled {
			all[i].code = codeCancelled
		}
	}
	return nil
}

// countDown takes ended ticks off their leases; a lease without any left is gone. It comes last in its transaction: who
// else finishes ticks of a lease waits from here on. A lease that somebody still looks at ends with its time.
func countDown(ctx context.Context, tx pgx.Tx, tenant tenants.ID, counts map[int64]int32) error {
	if len(counts) == 0 {
		return nil
	}
	var ids []int64
	var n []int32
	for id, count := range counts {
		ids, n = append(ids, id), append(n, count)
	}
	var b pgx.Batch
	b.Queue(`SELECT FROM lease WHERE tenant_id = $1 AND id = ANY($2) ORDER BY id FOR NO KEY UPDATE`, tenant, ids)
	b.Queue(`
		DELETE FROM lease
		WHERE tenant_id = $1 AND id IN (
			SELECT l.id
			FROM unnest($2::bigint[], $3::int[]) AS i (id, n)
			JOIN lease l ON l.tenant_id = $1 AND l.id = i.id AND l.unended <= i.n
			FOR UPDATE OF l SKIP LOCKED)`, tenant, ids, n)
	b.Queue(`
		UPDATE lease l
		SET unended = GREATEST(0, l.unended - i.n)
		FROM unnest($2::bigint[], $3::int[]) AS i (id, n)
		WHERE l.tenant_id = $1 AND l.id = i.id`, tenant, ids, n)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("count down leases: %w", err)
	}
	return nil
}

// readFinishes checks what workers say of ticks; all faults are located.
func (d *Dispatch) readFinishes(ctx context.Context, tenant tenants.ID, items []Finish) ([]ending, error) {
	quotas, err := d.Quotas(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 || len(items) > mostLeased {
		return nil, fault.Invalid("/ticks", "name 1 to %d ticks", mostLeased)
	}
	endings := make([]ending, len(items))
	var errs []error
	bytes := 0
	for i, item := range items {
		at := fmt.Sprintf("/ticks/%d", i)
		e := &endings[i]
		switch item.Outcome {
		case "complete":
			e.outcome = succeeded
			if len(item.Result) > quotas.PayloadBytes {
				return nil, fault.New(http.StatusRequestEntityTooLarge, "result_too_large", "the result has %d bytes, and payload_bytes allows %d", len(item.Result), quotas.PayloadBytes)
			}
			if item.Result != nil {
				e.result = new(string(item.Result))
				bytes += len(item.Result)
			}
		case "fail":
			e.outcome, e.err = failed, keep(item.Error)
			e.final = item.Retry != nil && !*item.Retry
			if item.RetryAfter != "" {
				if e.retryAfter, err = schedules.Within(at+"/retry_after", item.RetryAfter, 0, 24*time.Hour); err != nil {
					errs = append(errs, err)
				}
			}
		default:
			errs = append(errs, fault.Invalid(at+"/outcome", "%q is neither complete nor fail", item.Outcome))
		}
	}
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	return endings, d.mayStore(ctx, d.API, tenant, bytes)
}

// mayStore refuses bytes that the tenant's quota has no room for.
func (d *Dispatch) mayStore(ctx context.Context, db postgres.DB, tenant tenants.ID, bytes int) error {
	if d.MayStore == nil || bytes == 0 {
		return nil
	}
	return d.MayStore(ctx, db, tenant, bytes)
}
