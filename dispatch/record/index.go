package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/varint"
	"github.com/carillonhq/carillon/tenants"
)

// indexName is what the ticks of one row of the index have in common.
type indexName struct {
	tenant   tenants.ID
	workflow string
	at       int64 // in seconds
}

// IndexEntries are rows of the index by time (table tick_time): one for the ticks of a workflow and nominal time, two bytes a tick.
type IndexEntries map[indexName][]ident.TickKey

// Add adds ticks of a tenant. Ticks of one workflow and nominal time share an entry.
func (r *IndexEntries) Add(tenant tenants.ID, ticks []Tick) {
	if *r == nil {
		*r = IndexEntries{}
	}
	for i := 0; i < len(ticks); {
		name := indexName{tenant, ticks[i].Workflow, ticks[i].NominalAt.Unix()}
		keys := (*r)[name]
		for ; i < len(ticks) && ticks[i].NominalAt.Unix() == name.at && ticks[i].Workflow == name.workflow; i++ {
			keys = append(keys, ticks[i].RowKey())
		}
		(*r)[name] = keys
	}
}

// Queue inserts the rows.
func (r IndexEntries) Queue(b *pgx.Batch) {
	if len(r) == 0 {
		return
	}
	var owners, counts []int32
	var workflows []string
	var times []time.Time
	var items [][]byte
	for name, keys := range r {
		owners, workflows, times = append(owners, int32(name.tenant)), append(workflows, name.workflow), append(times, time.Unix(name.at, 0).UTC())
		counts, items = append(counts, int32(len(keys))), append(items, packKeys(keys))
	}
	b.Queue(`
		INSERT INTO tick_time (tenant_id, nominal_at, workflow, ticks, items)
		SELECT tenant_id, at, workflow, ticks, items
		FROM unnest($1::int[], $2::timestamptz[], $3::text[], $4::int[], $5::bytea[]) AS n (tenant_id, at, workflow, ticks, items)`,
		owners, times, workflows, counts, items)
}

// QueueIndex adds ticks of a tenant to the index.
func QueueIndex(b *pgx.Batch, tenant tenants.ID, ticks []Tick) {
	var rows IndexEntries
	rows.Add(tenant, ticks)
	rows.Queue(b)
}

// packKeys packs the schedules of ticks, in ascending order, as varint deltas. A seq follows if it is not 0.
func packKeys(keys []ident.TickKey) []byte {
	slices.SortFunc(keys, func(a, b ident.TickKey) int {
		return cmp.Or(cmp.Compare(a.Schedule, b.Schedule), cmp.Compare(a.Seq, b.Seq))
	})
	var b []byte
	last := int64(0)
	for _, k := range keys {
		delta := uint64(k.Schedule-last) << 1
		if k.Seq == 0 {
			b = binary.AppendUvarint(b, delta)
		} else {
			b = binary.AppendUvarint(binary.AppendUvarint(b, delta|1), uint64(k.Seq))
		}
		last = k.Schedule
	}
	return b
}

var errBroken = errors.New("the packed keys of ticks are broken")

// UnpackKeys returns the n keys of an entry of the index, whose ticks have the nominal time at.
func UnpackKeys(b []byte, at time.Time, n int) ([]ident.TickKey, error) {
	r := varint.NewReader(b)
	keys := make([]ident.TickKey, n)
	last := int64(0)
	for i := range keys {
		delta := r.Next()
		last += int64(delta >> 1)
		keys[i] = ident.TickKey{Schedule: last, At: at}
		if delta&1 == 1 {
			keys[i].Seq = int32(r.Next())
		}
	}
	if !r.Whole() {
		return nil, errBroken
	}
	return keys, nil
}
