package record

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/ident"
)

// Keys are keys of ticks, and attempts at them, as the columns of a query. From and Through are the earliest and the latest nominal time.
type Keys struct {
	IDs     []int64
	At      []time.Time
	Seqs    []int32
	Tries   []int16
	From    time.Time
	Through time.Time
}

// Add appends the key of a tick and the number of an attempt at it.
func (a *Keys) Add(k ident.TickKey, attempt int16) {
	if len(a.IDs) == 0 || k.At.Before(a.From) {
		a.From = k.At
	}
	if len(a.IDs) == 0 || k.At.After(a.Through) {
		a.Through = k.At
	}
	a.IDs, a.At, a.Seqs, a.Tries = append(a.IDs, k.Schedule), append(a.At, k.At), append(a.Seqs, k.Seq), append(a.Tries, attempt)
}

// KeyIs returns the condition that a row has the key of one tick, whose four parts are SQL expressions. row is the name of the table in
// the statement; it may be empty. All SQL that names a tick uses this condition.
func KeyIs(row, tenant, schedule, at, seq string) string {
	if row != "" {
		row += "."
	}
	return row + `tenant_id = ` + tenant + ` AND ` + row + `schedule_id = ` + schedule + ` AND ` + row + `nominal_at = ` + at + ` AND ` + row + `seq = ` + seq
}

// ByKey is the condition that a row has the key $1 to $4.
var ByKey = KeyIs("", "$1", "$2", "$3", "$4")

// InKeys returns the condition that a row has one of the Keys, which the statement reads as i (id, at, seq), and is of tenant $1.
func InKeys(row string) string { return KeyIs(row, "$1", "i.id", "i.at", "i.seq") }

// SameKey returns the condition that two rows have the same key.
func SameKey(row, other string) string {
	return KeyIs(row, other+".tenant_id", other+".schedule_id", other+".nominal_at", other+".seq")
}

// onTick joins i (id, at, seq, attempt) with the rows of tick t; $1 is the tenant, $2 the ids, and $6 and $7 bound the
// partitions.
var onTick = InKeys("t") + `
	AND t.nominal_at BETWEEN $6 AND $7`

// TheTick is a join with the row of tick that i names, found by its key. It is LATERAL … OFFSET 0 because the planner knows nothing of
// a nominal time that has just come: it expects one tick there, and would read all ticks of that time for each key.
var TheTick = `LATERAL (SELECT * FROM tick t WHERE ` + onTick + ` OFFSET 0) t`

// ThatTick joins i with the rows of a tick t that an UPDATE changes, like onTick. The statement reads the ticks of the schedules $2
// from the first of the nominal times to the last.
//
// An UPDATE cannot join TheTick, so planUpdate and the form of this condition tell the planner what it does not know. A nested loop is
// off: the planner expects one tick at a nominal time, and would read all ticks of that time for each key. The tenant is a SELECT, so
// that the planner does not see its value: for a tenant that is newer than the last ANALYZE it expects one row, and would read all. An
// entry of an index is made expensive.
var ThatTick = KeyIs("t", "(SELECT $1::int)", "i.id", "i.at", "i.seq") + `
	AND t.nominal_at BETWEEN $6 AND $7 AND t.schedule_id = ANY ((SELECT $2::bigint[])::bigint[])`

// planUpdate comes before an UPDATE with ThatTick, and planOthers after it.
const (
	planUpdate = `
		SELECT set_config('carillon.cpu_index_tuple_cost', current_setting('cpu_index_tuple_cost'), true),
			set_config('cpu_index_tuple_cost', '100', true), set_config('enable_nestloop', 'off', true)`
	planOthers = `SELECT set_config('cpu_index_tuple_cost', current_setting('carillon.cpu_index_tuple_cost'), true), set_config('enable_nestloop', 'on', true)`
)

// TickUpdate is an UPDATE with ThatTick.
type TickUpdate struct {
	SQL  string
	Args func(part []ident.TickKey) []any
	Scan []any        // where the values of a returned row go
	Each func() error // called after each returned row
}

// UpdateTicks runs an UPDATE of the ticks with keys, in parts (NearParts), so that it reads few other ticks.
func UpdateTicks(ctx context.Context, tx pgx.Tx, keys []ident.TickKey, u TickUpdate) error {
	var b pgx.Batch
	b.Queue(planUpdate)
	for _, part := range NearParts(keys) {
		b.Queue(u.SQL, u.Args(part)...).Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, u.Scan, u.Each)
			return err
		})
	}
	b.Queue(planOthers)
	return tx.SendBatch(ctx, &b).Close()
}

// NearParts sorts keys by their times and cuts them into parts. The schedules of a part have no more than ten times as many ticks
// from its first time to its last as it has keys, plus 100: a schedule has at most one timed tick a second.
func NearParts(keys []ident.TickKey) (parts [][]ident.TickKey) {
	slices.SortFunc(keys, func(a, b ident.TickKey) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Schedule, b.Schedule)) })
	first, ids := 0, map[int64]bool{}
	for i, k := range keys {
		ids[k.Schedule] = true
		seconds := int(k.At.Sub(keys[first].At)/time.Second) + 1
		if len(ids)*seconds > 10*(i-first+1)+100 {
			parts = append(parts, keys[first:i])
			first = i
			clear(ids)
			ids[k.Schedule] = true
		}
	}
	return append(parts, keys[first:])
}

// NoTick returns the fault of a request that names a tick which does not exist.
func NoTick(id string) error { return fault.NotFound("no tick %q", id) }
