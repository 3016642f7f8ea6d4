package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/tenants"
)

const (
	mostStuck  = 100              // unopened chunks that are remembered one by one
	stuckAfter = 10 * time.Second // from then on a chunk that is not opened keeps no floor down
)

// swept remembers where the unopened chunks begin in the index by swept_at. One that nobody can open is remembered by its
// number, so that the floor rises above it.
type swept struct {
	reading sync.Mutex // one reading at a time
	floor   floor
	full    fullLooks

	mu    sync.Mutex
	known bool // there was a reading
	some  bool // the last reading found a chunk
	stuck []int64
}

// unopenedChunk is a chunk that no job has opened.
type unopenedChunk struct {
	ID      int64
	Tenant  tenants.ID
	SweptAt time.Time
}

// unopenedFrom reads unopened chunks, the earliest first: those swept from $1 on, and those among $2 that were swept before.
const unopenedFrom = `
		(SELECT id, tenant_id, swept_at
		FROM chunk
		WHERE opened_at IS NULL AND swept_at >= $1
		ORDER BY swept_at
		LIMIT $3)
		UNION ALL
		SELECT c.id, c.tenant_id, c.swept_at
		FROM chunk c
		WHERE c.id = ANY ($2) AND c.swept_at < $1 AND ` + stillUnopened

// read returns the first unopened chunks, and whether these are all.
func (s *swept) read(ctx context.Context, d *Dispatch) (first []unopenedChunk, all bool, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	began := time.Now()
	in, full := s.full.begin(began, 1)
	l := s.floor.look(&d.horizon, in[0])
	_, stuck := s.from(d)
	rows, _ := d.Pool.Query(ctx, unopenedFrom, l.from, stuck, mostStuck+1) // CollectRows reports the error
	first, err = pgx.CollectRows(rows, pgx.RowToStructByPos[unopenedChunk])
	if err != nil {
		return nil, false, fmt.Errorf("read unopened chunks: %w", err)
	}
	slices.SortFunc(first, func(a, b unopenedChunk) int { return a.SweptAt.Compare(b.SweptAt) })
	left := first
	stuck = nil
	for len(left) > 0 && len(stuck) < mostStuck && !l.horizon.IsZero() && left[0].SweptAt.Before(l.horizon.Add(-stuckAfter)) {
		stuck, left = append(stuck, left[0].ID), left[1:]
	}
	s.mu.Lock()
	s.known, s.some, s.stuck = true, len(first) > 0, stuck
	s.mu.Unlock()
	var from time.Time
	if len(left) > 0 {
		from = left[0].SweptAt
	}
	l.found(from)
	if full {
		s.full.ended(began, time.Now())
	}
	return first, len(first) <= mostStuck, nil
}

// from returns where a reading of unopened chunks begins, and those that were swept before.
func (s *swept) from(d *Dispatch) (from time.Time, stuck []int64) {
	l := s.floor.look(&d.horizon, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.from, append([]int64{}, s.stuck...)
}

// none tells whether the last reading found no chunk.
func (s *swept) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known && !s.some
}
