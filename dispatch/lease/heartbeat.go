package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Beat is a request to lengthen the lease of one tick.
type Beat struct {
	TickID     string `json:"tick_id" validate:"required"`
	LeaseToken string `json:"lease_token" validate:"required"`
	Lease      string `json:"lease,omitempty"`
}

// Beaten is the result of a Beat. LeaseUntil is the lease's new end if the verdict is Done; else nil.
type Beaten struct {
	Verdict    Verdict
	LeaseUntil *time.Time
}

// Beat lengthens leases, but never beyond the time that an attempt may take. It returns a result for each item, in their order.
func (ls *Leases) Beat(ctx context.Context, tenant tenants.ID, items []Beat) ([]Beaten, error) {
	lengths, err := readBeats(items)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	var all []claimed
	ends := make([]*time.Time, len(items))
	err = pgx.BeginFunc(ctx, ls.api, func(tx pgx.Tx) (err error) {
		ids, tokens := make([]string, len(items)), make([]string, len(items))
		for i, item := range items {
			ids[i], tokens[i] = item.TickID, item.LeaseToken
		}
		if all, err = ls.claims(ctx, tx, tenant, ids, tokens); err != nil {
			return err
		}
		return ls.beat(ctx, tx, tenant, all, lengths, ends)
	})
	if err != nil {
		return nil, err
	}
	results := make([]Beaten, len(items))
	for i, c := range all {
		results[i] = Beaten{c.verdict, ends[i]}
	}
	return results, nil
}

// readBeats checks heartbeats and returns how long each lease is to last from now.
func readBeats(items []Beat) ([]time.Duration, error) {
	if len(items) == 0 || len(items) > mostLeased {
		return nil, fault.Invalid("/ticks", "name 1 to %d ticks", mostLeased)
	}
	lengths := make([]time.Duration, len(items))
	var errs []error
	for i, item := range items {
		lengths[i] = time.Minute
		if item.Lease == "" {
			continue
		}
		length, err := policy.Within(fmt.Sprintf("/ticks/%d/lease", i), item.Lease, shortestLease, longestLease)
		errs, lengths[i] = append(errs, err), length
	}
	return lengths, fault.Join(errs...)
}

// beat lengthens the leases of the claims that hold, and sets their verdicts and ends.
func (ls *Leases) beat(ctx context.Context, tx pgx.Tx, tenant tenants.ID, all []claimed, lengths []time.Duration, ends []*time.Time) error {
	held, err := lockClaims(ctx, tx, tenant, all)
	if err != nil {
		return err
	}
	var tries []record.Try
	var stale record.Keys
	for _, c := range all {
		if c.verdict == undecided {
			tries = append(tries, record.Try{TickKey: c.TickKey, Attempt: c.token.Attempt})
		}
	}
	found, err := record.Sendables(ctx, tx, tenant, tries)
	if err != nil {
		return err
	}
	terms, err := readTerms(ctx, tx, tenant, found)
	if err != nil {
		return err
	}
	live := byRowKey(found)
	var leases []int64
	var slots []int16
	var until []time.Time
	for i := range all {
		c := &all[i]
		if c.verdict != undecided {
			continue
		}
		s := live[c.TickKey]
		if s == nil || s.Stopped() {
			stale.Add(c.TickKey, c.token.Attempt)
			c.verdict = Lost
			continue
		}
		timeout := terms[s.Workflow].With(s.Stated).Timeout
		end := held.now.Add(min(lengths[i], timeout))
		if c.token.Lease != 0 {
			if last := held.held[c.token.Lease].began.Add(timeout); end.After(last) {
				end = last.UTC()
			}
			leases, slots, until = append(leases, c.token.Lease), append(slots, c.token.Slot), append(until, end)
		}
		c.verdict, ends[i] = Done, &end
	}
	if err := ls.tellCancelled(ctx, tx, tenant, all, stale); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO lease_beat (lease_id, slot, until_at)
		SELECT DISTINCT ON (lease_id, slot) lease_id, slot, until_at
		FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[]) AS n (lease_id, slot, until_at)
		ORDER BY lease_id, slot, until_at DESC
		ON CONFLICT (lease_id, slot) DO UPDATE SET until_at = excluded.until_at`, leases, slots, until)
	if err != nil {
		return fmt.Errorf("lengthen leases: %w", err)
	}
	return nil
}

// byRowKey returns ticks by their keys.
func byRowKey(found []*record.Sendable) map[ident.TickKey]*record.Sendable {
	all := make(map[ident.TickKey]*record.Sendable, len(found))
	for _, s := range found {
		all[s.RowKey()] = s
	}
	return all
}
