package schedules

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// stored is a schedule as it is compared with a line. Its texts are valid until the next row.
type stored struct {
	id      int64
	shard   int16
	subject *string
	status  string
	pausing bool // only until a moment, or by a sync
	spec    pgtype.DriverBytes
	payload pgtype.DriverBytes
	labels  pgtype.DriverBytes
	note    *string
	terms   policy.Stored
}

const storedColumns = `id, shard, subject, status, paused_until IS NOT NULL OR paused_by IS NOT NULL, spec, payload, labels::text, note, ` + policy.Columns

func (s *stored) fields() []any {
	return append([]any{&s.id, &s.shard, &s.subject, &s.status, &s.pausing, &s.spec, &s.payload, &s.labels, &s.note}, s.terms.Fields()...)
}

// longestKnown bounds the texts of labels that stay in memory while a batch is compared.
const longestKnown = 512

// says reports whether a definition, put again for a key, changes nothing. known holds labels by their text.
func (s *stored) says(d definition, key string, known map[string]map[string]string) (bool, error) {
	labels, ok := known[string(s.labels)]
	if !ok {
		if err := json.Unmarshal(s.labels, &labels); err != nil {
			return false, fmt.Errorf("labels of schedule %d: %w", s.id, err)
		}
		if len(s.labels) <= longestKnown {
			known[string(s.labels)] = labels
		}
	}
	return string(s.spec) == d.specText && policy.Same(s.subject, d.subjectFor(key)) && (s.payload == nil) == (d.payload == nil) && (d.payload == nil || string(s.payload) == *d.payload) &&
		maps.Equal(labels, d.labels) && (d.note.text == nil && !d.note.removed || policy.Same(d.note.text, s.note)) && s.terms.Equal(d.terms) &&
		(s.status == policy.Active || s.status == policy.Paused && !s.pausing) && (d.status == "" || d.status == s.status), nil
}

// match locks the shards in which the schedules of lines may lie, in ascending order, and finds which lines are stored, and which of
// those say what is stored.
func (u *upserts) match(ctx context.Context) error {
	u.shards = make([]int16, len(u.items))
	workflows, keys := make([]string, len(u.items)), make([]string, len(u.items))
	locked := maps.Clone(u.also)
	for i, it := range u.items {
		u.shards[i] = cohorts.ShardFor(u.batch.tenant, u.over, it.Workflow, it.Key)
		workflows[i], keys[i] = it.Workflow, it.Key
		for _, shard := range cohorts.PossibleShards(u.batch.tenant, u.over, it.Workflow, it.Key) {
			locked[shard] = true
		}
	}
	var q pgx.Batch
	q.Queue(`SELECT pg_advisory_xact_lock_shared($1, shard)::text FROM unnest($2::int[]) AS n (shard)`, postgres.ShardLocks, slices.Sorted(maps.Keys(locked)))
	// In a statement of its own: one that waited for the lock would show the others' rows as they were before it. Each line
	// is looked up by the index, whatever the planner knows of the table: a subquery with an OFFSET is not taken apart.
	q.Queue(`
		SELECT n.ord - 1, s.*
		FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS n (workflow, key, ord)
		CROSS JOIN LATERAL (
			SELECT `+storedColumns+`
			FROM schedule
			WHERE tenant_id = $1 AND workflow = n.workflow AND key = n.key
			OFFSET 0
		) s`, u.batch.tenant, workflows, keys)
	q.Queue(`SELECT ` + postgres.Now)
	results := u.batch.tx.SendBatch(ctx, &q)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return fmt.Errorf("lock shards: %w", err)
	}
	found, err := u.compare(results, locked)
	if err != nil {
		return err
	}
	if err := results.QueryRow().Scan(&u.batch.now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	u.batch.now = u.batch.now.UTC()
	for i, is := range found {
		if !is {
			u.fresh = append(u.fresh, i)
		}
	}
	return results.Close()
}

// compare reads the stored schedules of the lines, and returns which lines have one. If a schedule is in a shard that is not locked,
// because the tenant's schedules were once spread otherwise, the next try locks that shard too.
func (u *upserts) compare(results pgx.BatchResults, locked map[int16]bool) (found []bool, err error) {
	found = make([]bool, len(u.items))
	var ord int
	var s stored
	elsewhere := false
	rows, _ := results.Query() // ForEachRow reports the error
	_, err = pgx.ForEachRow(rows, append([]any{&ord}, s.fields()...), func() error {
		if !locked[s.shard] {
			u.also[s.shard], elsewhere = true, true
		}
		it := u.items[ord]
		found[ord], u.shards[ord], it.ID = true, s.shard, s.id
		it.Result = Unchanged
		says, err := s.says(it.definition, it.Key, u.labels)
		if !says {
			u.stored = append(u.stored, ord)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find what is stored: %w", err)
	}
	if elsewhere {
		return nil, errRaced
	}
	return found, nil
}
