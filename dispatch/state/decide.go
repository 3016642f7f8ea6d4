package state

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

// Schedule names the schedule whose counters move.
type Schedule struct {
	Tenant tenants.ID
	ID     int64
}

// Decision is what happens to a new tick: it is handed out, buffered or skipped.
type Decision int16

// The decisions, as column decision of schedule_state stores the last one. End stores other numbers there.
const (
	handedOut Decision = iota
	Buffered
	Skipped
)

// These expressions read columns of a state st that are null if they would repeat another column.
const (
	SeenAt    = `COALESCE(st.seen_at, st.last_at)` // nominal time of the last timed tick that was recorded
	NewestAt  = `COALESCE(st.live_at, st.last_at)` // with NewestSeq: the own tick that was handed out last
	NewestSeq = `COALESCE(st.live_seq, 0)`
)

// rule has two SQL conditions for a new tick n of a state st: when it is handed out, and when it is buffered. Otherwise it is skipped.
type rule struct{ handOut, buffer string }

// ruleOf returns the rule for ticks that may run if the condition free holds. A tick overlaps while another tick of its schedule runs or
// waits. A tick that overlaps only ticks aside waits for them under every policy. mostBuffered bounds buffer_all.
func ruleOf(free string) rule {
	return rule{
		handOut: `(` + free + ` AND (n.overlap = 'allow_all' OR st.live + st.buffered + st.aside = 0))`,
		buffer: `(` + free + ` AND n.overlap <> 'allow_all' AND st.live + st.buffered + st.aside > 0 AND (
		st.live + st.buffered = 0 OR
		n.overlap = 'buffer_one' AND st.buffered = 0 OR n.overlap = 'buffer_all' AND st.buffered < ` + mostBuffered + ` OR n.overlap = 'cancel_other'))`,
	}
}

const mostBuffered = `1000`

// count returns the assignments that count the tick.
func (r rule) count() string {
	return `live = st.live + CASE WHEN ` + r.handOut + ` THEN 1 ELSE 0 END,
			buffered = st.buffered + CASE WHEN ` + r.buffer + ` THEN 1 ELSE 0 END,
			fired = st.fired + CASE WHEN ` + r.handOut + ` THEN 1 ELSE 0 END,
			skipped = st.skipped + CASE WHEN ` + r.handOut + ` OR ` + r.buffer + ` THEN 0 ELSE 1 END,
			decision = CASE WHEN ` + r.handOut + ` THEN 0 WHEN ` + r.buffer + ` THEN 1 ELSE 2 END`
}

// Two reasons to skip a timed tick n, which the state st shows: a client asked for it, or the tick comes too soon. After a change of the
// zone of a schedule that fires once a day, the next tick comes 20 to 48 hours after the last one.
const (
	Requested = `n.at = ANY (st.skips)`
	TooSoon   = `(st.rezoned_at IS NOT NULL AND st.last_at <= st.rezoned_at AND st.rezoned_at < n.at AND n.at < st.last_at + interval '20 hours')`
)

var (
	manual = ruleOf(`n.reason = 0`)
	timed  = ruleOf(`n.reason = 0 AND (` + Requested + `) IS NOT TRUE AND ` + TooSoon + ` IS NOT TRUE`)
)

// Decide decides timed ticks, and moves the states of their schedules. It is the beginning of an UPDATE of schedule_state st, which
// goes on with FROM a relation n, WHERE Undecided, and RETURNING. n has one row for each tick: owner (the tenant), id (of the
// schedule), at (the nominal time), missed (the times that the tick stands for), reason (not 0: why it is skipped whatever the
// state) and overlap (the policy). Afterwards st.decision is the decision, and st.prev_at is the old last_at.
var Decide = `
		UPDATE schedule_state st
		SET seen_at = CASE WHEN ` + timed.handOut + ` THEN NULL ELSE n.at END,
			missed = st.missed + n.missed,
			last_tick_at = NULL,
			last_seq = NULL,
			prev_at = st.last_at,
			last_at = CASE WHEN ` + timed.handOut + ` THEN n.at ELSE st.last_at END,
			occurrence = st.occurrence + CASE WHEN ` + timed.handOut + ` THEN 1 ELSE 0 END,
			live_at = CASE WHEN ` + timed.handOut + ` THEN NULL ELSE st.live_at END,
			live_seq = CASE WHEN ` + timed.handOut + ` THEN NULL ELSE st.live_seq END,
			` + timed.count()

// Undecided joins Decide's n with the states of its schedules, and leaves out the ticks that were decided before.
const Undecided = `st.tenant_id = n.owner AND st.schedule_id = n.id AND (` + SeenAt + ` < n.at) IS NOT FALSE`

// triggered is a decided manual tick: its number, its decision, and the nominal time of the last timed tick before it.
type triggered struct {
	Seq      int32
	Decision Decision
	LastAt   *time.Time
}

var trigger = `
		UPDATE schedule_state st
		SET manual = st.manual + 1, last_tick_at = $5, last_seq = st.manual + 1,
			live_at = CASE WHEN ` + manual.handOut + ` THEN $5 ELSE st.live_at END,
			live_seq = CASE WHEN ` + manual.handOut + ` THEN st.manual + 1 ELSE st.live_seq END,
			` + manual.count() + `
		FROM (SELECT $3::smallint AS reason, $4::text AS overlap) n
		WHERE st.tenant_id = $1 AND st.schedule_id = $2
		RETURNING st.manual, st.decision, st.last_at`

// Trigger decides a manual tick at a nominal time, under an overlap policy. A reason other than 0 skips the tick whatever the state.
func Trigger(ctx context.Context, tx pgx.Tx, s Schedule, at time.Time, reason int16, overlap string) (t triggered, err error) {
	err = tx.QueryRow(ctx, trigger, s.Tenant, s.ID, reason, overlap, at).Scan(&t.Seq, &t.Decision, &t.LastAt)
	if err != nil {
		return t, fmt.Errorf("count the manual tick: %w", err)
	}
	return t, nil
}
