package dispatch

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
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

// Beat lengthens the lease of one tick.
type Beat struct {
	TickID     string `json:"tick_id" validate:"required"`
	LeaseToken string `json:"lease_token" validate:"required"`
	Lease      string `json:"lease,omitempty"`
}

// BeatResult is what became of a Beat: 200 with the lease's new end, or as in FinishResult.
type BeatResult struct {
	TickID     string     `json:"tick_id"`
	Status     int        `json:"status"`
	Code       string     `json:"code,omitempty"`
	LeaseUntil *time.Time `json:"lease_until,omitempty"`
}

const (
	codeNotFound  = "not_found"
	codeCancelled = "cancelled"
	codeLost      = "lease_lost"
)

// claimed is a tick with the token that a worker shows for it.
type claimed struct {
	ident.TickKey
	token  leaseToken
	status int // 0 until it is refused
	code   string
}

// claims reads ids and tokens. What cannot be this tenant's is told apart by nothing: a tick that is not there is 404.
func (d *Dispatch) claims(ctx context.Context, db postgres.DB, tenant tenants.ID, ids, tokens []string) ([]claimed, error) {
	all := make([]claimed, len(ids))
	var doubtful keyArrays
	for i := range all {
		c := &all[i]
		k, ok := d.IDs.ParseTick(ids[i])
		if !ok {
			c.status, c.code = http.StatusNotFound, codeNotFound
			continue
		}
		c.TickKey = k
		if c.token, ok = d.unseal(tenant, k, tokens[i]); !ok {
			c.status, c.code = http.StatusNotFound, codeNotFound
			doubtful.add(k, 0)
		}
	}
	if len(doubtful.ids) == 0 {
		return all, nil
	}
	states, err := tickStates(ctx, db, tenant, doubtful)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if _, there := states[all[i].TickKey]; there && all[i].status != 0 {
			all[i].status, all[i].code = http.StatusConflict, codeLost
		}
	}
	return all, nil
}

// tickStates reads the states of ticks; one that was told to stop counts as cancelled.
func tickStates(ctx context.Context, db postgres.DB, tenant tenants.ID, keys keyArrays) (map[ident.TickKey]State, error) {
	rows, err := db.Query(ctx, `
		SELECT t.schedule_id, t.nominal_at, t.seq, CASE WHEN t.state = $8 AND t.reason <> 0 THEN $9::smallint ELSE t.state END
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) AS i (id, at, seq, attempt)
		JOIN `+theTick+` ON true`, tenant, keys.ids, keys.at, keys.seqs, keys.tries, keys.from, keys.through, int16(Running), int16(Cancelled))
	if err != nil {
		return nil, fmt.Errorf("read states of ticks: %w", err)
	}
	states := map[ident.TickKey]State{}
	var k ident.TickKey
	var state State
	_, err = pgx.ForEachRow(rows, []any{&k.Schedule, &k.At, &k.Seq, &state}, func() error {
		k.At = k.At.UTC()
		states[k] = state
		return nil
	})
	return states, err
}

// standing locks the leases of claims and refuses those whose time is up. It tells when each attempt began, and who
// works on it.
func standing(ctx context.Context, tx pgx.Tx, tenant tenants.ID, all []claimed) (started map[int64]time.Time, workers map[int64]string, until map[slotName]time.Time, now time.Time, err error) {
	var tokens []leaseToken
	var pushed keyArrays
	for _, c := range all {
		if c.status == 0 {
			tokens = append(tokens, c.token)
			if c.token.lease == 0 {
				pushed.add(c.TickKey, c.token.attempt)
			}
		}
	}
	until, started, workers, now, err = lockLeases(ctx, tx, tenant, tokens)
	if err != nil {
		return nil, nil, nil, now, err
	}
	late, err := overdue(ctx, tx, tenant, pushed)
	if err != nil {
		return nil, nil, nil, now, err
	}
	for i := range all {
		c := &all[i]
		if c.status != 0 {
			continue
		}
		end, leased := until[slotName{c.token.lease, c.token.slot}]
		if (c.token.lease != 0 && (!leased || !end.After(now)) || c.token.lease == 0 && late[c.TickKey]) && !sabotage.LeaseUnchecked.On() {
			c.status, c.code = http.StatusConflict, codeLost
		}
	}
	return started, workers, until, now, nil
}

// overdue are those of pushed ticks whose answer should have come by now.
func overdue(ctx context.Context, tx pgx.Tx, tenant tenants.ID, keys keyArrays) (map[ident.TickKey]bool, error) {
	late := map[ident.TickKey]bool{}
	if len(keys.ids) == 0 {
		return late, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT h.schedule_id, h.nominal_at, h.seq
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[]) AS i (id, at, seq)
		JOIN held h ON h.tenant_id = $1 AND h.schedule_id = i.id AND h.nominal_at = i.at AND h.seq = i.seq
		WHERE h.why = 'answer' AND h.due_at <= (SELECT clock_timestamp())`, tenant, keys.ids, keys.at, keys.seqs)
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

// Beat lengthens leases: none beyond the time that an attempt may take.
func (d *Dispatch) Beat(ctx context.Context, tenant tenants.ID, items []Beat) ([]BeatResult, error) {
	lengths, err := readBeats(items)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var all []claimed
	ends := make([]*time.Time, len(items))
	err = pgx.BeginFunc(ctx, d.API, func(tx pgx.Tx) (err error) {
		ids, tokens := make([]string, len(items)), make([]string, len(items))
		for i, item := range items {
			ids[i], tokens[i] = item.TickID, item.LeaseToken
		}
		if all, err = d.claims(ctx, tx, tenant, ids, tokens); err != nil {
			return err
		}
		return d.beat(ctx, tx, tenant, all, lengths, ends)
	})
	if err != nil {
		return nil, err
	}
	results := make([]BeatResult, len(items))
	for i, c := range all {
		results[i] = BeatResult{items[i].TickID, c.status, c.code, ends[i]}
	}
	return results, nil
}

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
		length, err := schedules.Within(fmt.Sprintf("/ticks/%d/lease", i), item.Lease, shortestLease, longestLease)
		errs, lengths[i] = append(errs, err), length
	}
	return lengths, fault.Join(errs...)
}

func (d *Dispatch) beat(ctx context.Context, tx pgx.Tx, tenant tenants.ID, all []claimed, lengths []time.Duration, ends []*time.Time) error {
	started, _, _, now, err := standing(ctx, tx, tenant, all)
	if err != nil {
		return err
	}
	var tries []try
	var stale keyArrays
	for _, c := range all {
		if c.status == 0 {
			tries = append(tries, try{TickKey: c.TickKey, Attempt: c.token.attempt})
		}
	}
	found, err := sendables(ctx, tx, tenant, tries)
	if err != nil {
		return err
	}
	live := map[ident.TickKey]*sendable{}
	for _, s := range found {
		live[s.key()] = s
	}
	var leases []int64
	var slots []int16
	var until []time.Time
	for i := range all {
		c := &all[i]
		if c.status != 0 {
			continue
		}
		s := live[c.TickKey]
		if s == nil || s.stopped() {
			stale.add(c.TickKey, c.token.attempt)
			c.status, c.code = http.StatusConflict, codeLost
			continue
		}
		timeout := seconds(or(s.Timeout, int32(schedules.DefaultTimeout/time.Second)))
		end := now.Add(min(lengths[i], timeout))
		if c.token.lease != 0 {
			if last := started[c.token.lease].Add(timeout); end.After(last) {
				end = last.UTC()
			}
			leases, slots, until = append(leases, c.token.lease), append(slots, c.token.slot), append(until, end)
		}
		c.status, ends[i] = http.StatusOK, &end
	}
	if err := d.tellCancelled(ctx, tx, tenant, all, stale); err != nil {
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
