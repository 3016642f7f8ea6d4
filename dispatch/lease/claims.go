package lease

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/tenants"
)

// claimed is a tick with the token that a worker shows for it.
type claimed struct {
	ident.TickKey
	token   message.Token
	verdict Verdict
}

// Verdict is the result of a worker's claim of a tick.
type Verdict int8

// The verdicts.
const (
	undecided  Verdict = iota
	Done               // the tick has ended, or its lease is longer
	Absent             // the tenant has no such tick
	Lost               // the token is stale, or belongs to another attempt
	ToldToStop         // the tick was cancelled
)

// claims reads ids and tokens. The answer for a tick of another tenant is the same as for a tick that never was: Absent.
func (ls *Leases) claims(ctx context.Context, db postgres.DB, tenant tenants.ID, ids, tokens []string) ([]claimed, error) {
	all := make([]claimed, len(ids))
	var doubtful record.Keys
	for i := range all {
		c := &all[i]
		k, ok := ls.ids.ParseTick(ids[i])
		if !ok {
			c.verdict = Absent
			continue
		}
		c.TickKey = k
		if c.token, ok = ls.messages.Unseal(tenant, k, tokens[i]); !ok {
			c.verdict = Absent
			doubtful.Add(k, 0)
		}
	}
	if len(doubtful.IDs) == 0 {
		return all, nil
	}
	states, err := tickStates(ctx, db, tenant, doubtful)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if _, there := states[all[i].TickKey]; there && all[i].verdict != undecided {
			all[i].verdict = Lost
		}
	}
	return all, nil
}

// tickStates reads the states of ticks. A tick that was told to stop counts as cancelled.
func tickStates(ctx context.Context, db postgres.DB, tenant tenants.ID, keys record.Keys) (map[ident.TickKey]record.State, error) {
	rows, err := db.Query(ctx, `
		SELECT t.schedule_id, t.nominal_at, t.seq, CASE WHEN t.state = $8 AND t.reason <> 0 THEN $9::smallint ELSE t.state END
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
		JOIN `+record.TheTick+` ON true`, tenant, keys.IDs, keys.At, keys.Seqs, keys.Tries, keys.From, keys.Through, int16(record.Running), int16(record.Cancelled))
	if err != nil {
		return nil, fmt.Errorf("read states of ticks: %w", err)
	}
	states := map[ident.TickKey]record.State{}
	var k ident.TickKey
	var state record.State
	_, err = pgx.ForEachRow(rows, []any{&k.Schedule, &k.At, &k.Seq, &state}, func() error {
		k.At = k.At.UTC()
		states[k] = state
		return nil
	})
	return states, err
}

// lockClaims locks the leases of claims, and sets Lost on the claims whose time is over.
func lockClaims(ctx context.Context, tx pgx.Tx, tenant tenants.ID, all []claimed) (lockedLeases, error) {
	var tokens []message.Token
	var pushed record.Keys
	for _, c := range all {
		if c.verdict == undecided {
			tokens = append(tokens, c.token)
			if c.token.Lease == 0 {
				pushed.Add(c.TickKey, c.token.Attempt)
			}
		}
	}
	leases, err := lockLeases(ctx, tx, tenant, tokens)
	if err != nil {
		return leases, err
	}
	late, err := overdue(ctx, tx, tenant, pushed)
	if err != nil {
		return leases, err
	}
	for i := range all {
		c := &all[i]
		if c.verdict != undecided {
			continue
		}
		end, leased := leases.until(c.token)
		if (c.token.Lease != 0 && (!leased || !end.After(leases.now)) || c.token.Lease == 0 && late[c.TickKey]) && !sabotage.LeaseUnchecked.On() {
			c.verdict = Lost
		}
	}
	return leases, nil
}

// overdue returns the pushed ticks whose answer should have come by now.
func overdue(ctx context.Context, tx pgx.Tx, tenant tenants.ID, keys record.Keys) (map[ident.TickKey]bool, error) {
	late := map[ident.TickKey]bool{}
	if len(keys.IDs) == 0 {
		return late, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT h.schedule_id, h.nominal_at, h.seq
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS i (id, at, seq)
		JOIN delayed h ON `+record.InKeys("h")+`
		WHERE h.why = 'answer' AND h.due_at <= (SELECT `+postgres.Now+`)`, tenant, keys.IDs, keys.At, keys.Seqs)
	if err != nil {
		return nil, fmt.Errorf("look for overdue answers: %w", err)
	}
	var k ident.TickKey
	_, err = pgx.ForEachRow(rows, []any{&k.Schedule, &k.At, &k.Seq}, func() error {
		k.At = k.At.UTC()
		late[k] = true
		return nil
	})
	return late, err
}
