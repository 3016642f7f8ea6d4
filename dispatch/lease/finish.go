package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Finish says how a worker ended one tick.
type Finish struct {
	TickID     string  `json:"tick_id" validate:"required"`
	LeaseToken string  `json:"lease_token" validate:"required"`
	Outcome    string  `json:"outcome"`
	Result     web.Raw `json:"result,omitempty"`
	Error      string  `json:"error,omitempty" empty:"yes"`
	Retry      *bool   `json:"retry,omitempty"`
	RetryAfter string  `json:"retry_after,omitempty"`
}

// Finish ends ticks that workers hold, and returns a verdict for each item, in their order. A stale or foreign token changes nothing.
func (ls *Leases) Finish(ctx context.Context, tenant tenants.ID, items []Finish) ([]Verdict, error) {
	endings, err := ls.readFinishes(ctx, tenant, items)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	var all []claimed
	err = postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, ls.api, func(tx pgx.Tx) (err error) {
			ids, tokens := make([]string, len(items)), make([]string, len(items))
			for i, item := range items {
				ids[i], tokens[i] = item.TickID, item.LeaseToken
			}
			if all, err = ls.claims(ctx, tx, tenant, ids, tokens); err != nil {
				return err
			}
			err = ls.end(ctx, tx, tenant, all, endings)
			sabotage.Crash("finish.before_commit")
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	sabotage.Crash("finish.committed")
	results := make([]Verdict, len(items))
	for i, c := range all {
		results[i] = c.verdict
	}
	return results, nil
}

// end ends the ticks of the claims that hold, and sets the verdicts.
func (ls *Leases) end(ctx context.Context, tx pgx.Tx, tenant tenants.ID, all []claimed, endings []finish.Ending) error {
	leases, err := lockClaims(ctx, tx, tenant, all)
	if err != nil {
		return err
	}
	var valid []finish.Ending
	for i, c := range all {
		if c.verdict != undecided {
			continue
		}
		e := endings[i]
		e.TickKey, e.Attempt, e.Answered = c.TickKey, c.token.Attempt, c.token.Lease == 0
		if l, leased := leases.held[c.token.Lease]; leased {
			e.Started, e.Worker = &l.began, &l.worker
		}
		valid = append(valid, e)
	}
	ended, err := ls.finish.End(ctx, tx, tenant, leases.now, valid)
	if err != nil {
		return err
	}
	var stale record.Keys
	counts := map[int64]int32{}
	for i := range all {
		c := &all[i]
		if c.verdict != undecided {
			continue
		}
		if _, did := ended[c.TickKey]; !did {
			stale.Add(c.TickKey, c.token.Attempt)
			c.verdict = Lost
			continue
		}
		delete(ended, c.TickKey) // a second finish of the same tick in one request is stale
		c.verdict = Done
		if c.token.Lease != 0 {
			counts[c.token.Lease]++
		}
	}
	if err := ls.tellCancelled(ctx, tx, tenant, all, stale); err != nil {
		return err
	}
	return countDown(ctx, tx, tenant, counts)
}

// tellCancelled gives the claims of cancelled ticks the verdict ToldToStop.
func (ls *Leases) tellCancelled(ctx context.Context, tx pgx.Tx, tenant tenants.ID, all []claimed, stale record.Keys) error {
	if len(stale.IDs) == 0 {
		return nil
	}
	states, err := tickStates(ctx, tx, tenant, stale)
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].verdict == Lost && states[all[i].TickKey] == record.Cancelled {
			all[i].verdict = ToldToStop
		}
	}
	return nil
}

// countDown subtracts ended ticks from their leases, and deletes the leases that have none left. It comes last in its transaction,
// because other finishes of the same lease wait from here on. A lease that another transaction has locked stays until its time ends.
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

// readFinishes checks items and returns them as endings, without the keys of their ticks. The error joins all faults with their places.
func (ls *Leases) readFinishes(ctx context.Context, tenant tenants.ID, items []Finish) ([]finish.Ending, error) {
	quotas, err := ls.quotas(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 || len(items) > mostLeased {
		return nil, fault.Invalid("/ticks", "name 1 to %d ticks", mostLeased)
	}
	endings := make([]finish.Ending, len(items))
	var errs []error
	bytes := 0
	for i, item := range items {
		at := fmt.Sprintf("/ticks/%d", i)
		e := &endings[i]
		switch item.Outcome {
		case "complete":
			e.Outcome = finish.Succeeded
			if len(item.Result) > quotas.PayloadBytes {
				return nil, tenants.TooLarge(at+"/result", "payload_bytes", quotas.PayloadBytes, len(item.Result))
			}
			if item.Result != nil {
				e.Result = new(string(item.Result))
				bytes += len(item.Result)
			}
		case "fail":
			e.Outcome, e.Err = finish.Failed, finish.ErrorText(item.Error)
			e.Final = item.Retry != nil && !*item.Retry
			if item.RetryAfter != "" {
				if e.RetryAfter, err = policy.Within(at+"/retry_after", item.RetryAfter, 0, 24*time.Hour); err != nil {
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
	return endings, ls.mayStore(ctx, ls.api, tenant, bytes)
}
