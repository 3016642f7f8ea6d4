package chunk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// StillUnopened is the condition that a chunk c, which is found by its number, is not open. Its form keeps the planner from using the
// index of unopened chunks: with statistics of a short backlog it would read that whole index instead of a few numbers.
const StillUnopened = `COALESCE(c.opened_at, 'infinity') = 'infinity'`

// OfRun is the condition that c is an unopened chunk of a run: from number $1 to $2, in the shard and lane of the first.
const OfRun = `c.id BETWEEN $1 AND $2 AND c.shard = (SELECT shard FROM chunk WHERE id = $1) AND c.lane = (SELECT lane FROM chunk WHERE id = $1) AND ` + StillUnopened

const (
	mostStuck  = 100              // unopened chunks that are remembered one by one
	stuckAfter = 10 * time.Second // a chunk that is unopened for longer does not hold the floor down
)

// Unopened remembers a floor: no chunk with a lower number is unopened, except those that it remembers one by one, which no job can
// open. It must miss no chunk, because the order in which a schedule's ticks are decided depends on it. So it relies on the numbers of
// chunks and of transactions, and on no clock.
type Unopened struct {
	reading sync.Mutex // one reading at a time

	mu    sync.Mutex
	known bool // there was a reading
	some  bool // the last reading found a chunk
	era   int  // of the horizon
	floor int64
	stuck []int64 // below the floor
}

// unopenedChunk is a chunk that no job has opened.
type unopenedChunk struct {
	ID      int64
	Tenant  tenants.ID
	SweptAt time.Time
	Old     bool
}

// unopenedFrom reads unopened chunks, the lowest numbers first: up to $3 from number $1 on, and the chunks of $2 below it.
const unopenedFrom = `
		SELECT id, tenant_id, swept_at, swept_at < ` + postgres.Now + ` - make_interval(secs => $4)
		FROM (
			(SELECT id, tenant_id, swept_at
			FROM chunk
			WHERE opened_at IS NULL AND swept_at IS NOT NULL AND id >= $1
			ORDER BY id
			LIMIT $3)
			UNION ALL
			SELECT c.id, c.tenant_id, c.swept_at
			FROM chunk c
			WHERE c.id = ANY ($2) AND c.id < $1 AND ` + StillUnopened + `
		) c`

// Read reads the first unopened chunks and advances the floor. all reports that there are no more.
func (s *Unopened) Read(ctx context.Context, db postgres.DB, h *cluster.Horizon) (first []unopenedChunk, all bool, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	settled, era := h.Chunks()
	from, stuck := s.From(h)
	rows, _ := db.Query(ctx, unopenedFrom, from, stuck, mostStuck+1, stuckAfter.Seconds()) // CollectRows reports the error
	first, err = pgx.CollectRows(rows, pgx.RowToStructByPos[unopenedChunk])
	if err != nil {
		return nil, false, fmt.Errorf("read unopened chunks: %w", err)
	}
	slices.SortFunc(first, func(a, b unopenedChunk) int { return cmp.Compare(a.ID, b.ID) })
	left := first
	stuck = nil
	for len(left) > 0 && len(stuck) < mostStuck && left[0].Old {
		stuck, left = append(stuck, left[0].ID), left[1:]
	}
	floor := settled + 1
	if len(left) > 0 {
		floor = min(floor, left[0].ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.some = true, len(first) > 0
	s.era, s.floor, s.stuck = era, floor, slices.DeleteFunc(stuck, func(id int64) bool { return id >= floor })
	return first, len(first) <= mostStuck, nil
}

// From returns the number from which unopened chunks are read, and the numbers of the unopened chunks below it.
func (s *Unopened) From(h *cluster.Horizon) (floor int64, stuck []int64) {
	_, era := h.Chunks()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.era != era {
		return 0, []int64{}
	}
	return s.floor, append([]int64{}, s.stuck...)
}

// None reports whether the last reading found no chunk.
func (s *Unopened) None() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known && !s.some
}

// UnopenedOf returns an SQL table of the unopened chunks of one shard and tenant. The arguments are SQL expressions; floor and stuck
// stand for the results of From.
func UnopenedOf(shard, tenant, floor, stuck string) string {
	return unopenedWhere("", shard, tenant, floor, stuck)
}

// UnopenedBefore is like UnopenedOf, for chunks with lower numbers than id. It compares rows: of the indexes only the one by shard and
// tenant can serve this, and the planner does not read all lower numbers.
func UnopenedBefore(id, shard, tenant, floor, stuck string) string {
	return unopenedWhere(` AND (shard, tenant_id, id) < (`+shard+`, `+tenant+`, `+id+`)`, shard, tenant, floor, stuck)
}

func unopenedWhere(lower, shard, tenant, floor, stuck string) string {
	return strings.NewReplacer("LOWER", lower, "SHARD", shard, "TENANT", tenant, "FLOOR", floor, "STUCK", stuck).Replace(`(
		SELECT id, kind, nominal_at, first_id, last_id, items
		FROM chunk
		WHERE shard = SHARD AND tenant_id = TENANT AND opened_at IS NULL AND id >= FLOOR LOWER
		UNION ALL
		SELECT u.id, u.kind, u.nominal_at, u.first_id, u.last_id, u.items
		FROM chunk u
		WHERE u.id = ANY (STUCK) AND u.id < FLOOR AND u.shard = SHARD AND u.tenant_id = TENANT AND ` + strings.ReplaceAll(StillUnopened, "c.", "u.") + `
	)`)
}
