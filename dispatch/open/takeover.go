package open

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/loop"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

const (
	TakeEvery  = time.Second
	mostTaken  = 50
	unopenedIn = 3 * time.Second // River's own rescue takes minutes
	mostStale  = 1000            // unopened chunks of a page
	mostPages  = 10              // read by one run
	staleFor   = 5 * time.Second // the maximum time of one run that opens stale chunks
)

// takeOver periodically takes over the chunks of dead processes, and opens chunks that no job has opened in time.
func (o *Opener) takeOver(ctx context.Context) {
	loop.Every(ctx, o.log.Logger, TakeEvery, "take over chunks", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if _, alive := o.cluster.Member.Self(); !alive || sabotage.NoTakeOver.On() {
			return nil
		}
		err := o.TakeOwned(ctx)
		if o.unopened.None() {
			return err
		}
		return errors.Join(err, o.OpenStale(ctx))
	})
}

// sendAll sends the ticks of taken chunks. If one chunk fails, it still sends the others; the failed one is taken again.
func (o *Opener) sendAll(ctx context.Context, taken []*chunk.Chunk, self int64) error {
	slices.SortFunc(taken, func(a, b *chunk.Chunk) int { return cmp.Compare(a.ID, b.ID) })
	var errs []error
	for _, c := range taken {
		c.NominalAt = c.NominalAt.UTC()
		if err := o.sendTaken(ctx, c, self); err != nil {
			errs = append(errs, fmt.Errorf("chunk %d: %w", c.ID, err))
		}
	}
	return errors.Join(errs...)
}

// sendTaken sends the running ticks of a taken chunk again, as the same attempts, because nobody knows whether they were sent.
func (o *Opener) sendTaken(ctx context.Context, c *chunk.Chunk, self int64) error {
	tries, err := c.Tries()
	if err != nil {
		return err
	}
	p := &plan{chunk: c, origin: takenOver}
	err = pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error { return o.resend(ctx, tx, p, tries, self) })
	if err != nil {
		return err
	}
	o.send(p)
	return nil
}

// resend routes those of an open chunk's tries that nobody has sent or holds, and writes where they go.
func (o *Opener) resend(ctx context.Context, tx pgx.Tx, p *plan, tries []record.Try, self int64) error {
	found, err := o.unsent(ctx, tx, p, tries)
	if err != nil {
		return err
	}
	if err := o.route(ctx, tx, p, found); err != nil {
		return err
	}
	return o.write(ctx, tx, []*plan{p}, self)
}

// unsent reads those of an open chunk's tries whose ticks run and wait nowhere else: not in delayed, not in a chunk that is not open yet, and
// not for a worker. A held tick moves from delayed into its next chunk, and belongs to that chunk once it is open. So the places are read in
// this order: a tick that moves meanwhile is seen in one of them.
func (o *Opener) unsent(ctx context.Context, tx pgx.Tx, p *plan, tries []record.Try) ([]*record.Sendable, error) {
	tries, err := notDelayed(ctx, tx, p.chunk.TenantID, tries)
	if err != nil {
		return nil, err
	}
	if p.origin == takenOver { // the ticks of a refill never left the chunk
		if tries, err = o.notUnopened(ctx, tx, p.chunk, tries); err != nil {
			return nil, err
		}
	}
	found, err := record.Sendables(ctx, tx, p.chunk.TenantID, tries)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(s *record.Sendable) bool { return s.ChunkID == nil || *s.ChunkID != p.chunk.ID }), nil
}

// notDelayed returns the tries whose ticks are not in delayed.
func notDelayed(ctx context.Context, tx pgx.Tx, tenant tenants.ID, tries []record.Try) ([]record.Try, error) {
	if len(tries) == 0 {
		return nil, nil
	}
	var keys record.Keys
	for _, t := range tries {
		keys.Add(t.TickKey, t.Attempt)
	}
	// Each is looked for by its key (OFFSET 0): a join may read all delayed ticks of the tenant.
	rows, _ := tx.Query(ctx, `
		SELECT (i.ord - 1)::int
		FROM unnest($2::bigint[], $3::timestamptz[], $4::int[]) WITH ORDINALITY AS i (id, at, seq, ord)
		WHERE NOT EXISTS (
			SELECT FROM delayed h
			WHERE `+record.InKeys("h")+`
			OFFSET 0)`,
		tenant, keys.IDs, keys.At, keys.Seqs) // CollectRows reports the error
	left, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return nil, fmt.Errorf("leave out delayed ticks: %w", err)
	}
	others := make([]record.Try, len(left))
	for i, at := range left {
		others[i] = tries[at]
	}
	return others, nil
}

// notUnopened returns the tries whose ticks are not in other chunks of the tenant and the shard that wait to be opened.
func (o *Opener) notUnopened(ctx context.Context, tx pgx.Tx, c *chunk.Chunk, tries []record.Try) ([]record.Try, error) {
	if len(tries) == 0 {
		return nil, nil
	}
	floor, stuck := o.unopened.From(o.cluster.Horizon)
	rows, err := tx.Query(ctx, `
		SELECT items
		FROM `+chunk.UnopenedOf("$1", "$2", "$3", "$4")+` k
		WHERE kind = $5`, c.Shard, c.TenantID, floor, stuck, chunk.LaterTries)
	if err != nil {
		return nil, fmt.Errorf("look for unopened chunks: %w", err)
	}
	waiting := map[ident.TickKey]bool{}
	var items []byte
	_, err = pgx.ForEachRow(rows, []any{&items}, func() error {
		others, err := chunk.UnpackTries(items)
		for _, t := range others {
			waiting[t.TickKey] = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for unopened chunks: %w", err)
	}
	return slices.DeleteFunc(tries, func(t record.Try) bool { return waiting[t.TickKey] }), nil
}

// OpenStale opens stale chunks: their job died with its process, or River retries it much later. A chunk is stale if it has waited too long
// and all waiting jobs of its lane are for later chunks; in a backlog a chunk only waits for its turn. If River delivers no job of a lane
// to this process, the lane's chunks do not wait for jobs. One run reads some pages of the unopened chunks, and the next run continues
// after them, so that the backlog of one lane hides no chunk of another.
func (o *Opener) OpenStale(ctx context.Context) error {
	var jobs map[string]int64
	for began, pages := time.Now(), 0; ; {
		stale, next, err := o.stale(ctx, &jobs)
		if err != nil {
			return fmt.Errorf("look for unopened chunks: %w", err)
		}
		if o.taking.staleAt = next; len(stale) < mostTaken {
			pages++
		}
		if err := o.openEach(ctx, stale); err != nil || next == 0 || pages >= mostPages || time.Since(began) > staleFor {
			return err
		}
	}
}

// staleChunk is a chunk that has been unopened for too long.
type staleChunk struct {
	ID   int64
	Lane string
}

// openEach opens chunks. If one fails, it still opens the others.
func (o *Opener) openEach(ctx context.Context, stale []staleChunk) error {
	var errs []error
	for _, c := range stale {
		err := o.Open(ctx, c.ID)
		if err != nil && !o.taking.left.add(c.ID, err, time.Now()) {
			errs = append(errs, fmt.Errorf("open chunk %d: %w", c.ID, err))
		}
	}
	return errors.Join(errs...)
}

// stale returns up to mostTaken stale chunks of the page that begins at staleAt, and the begin of the next page; 0: there is no other page.
// It reads the first job of each lane only if there are unopened chunks, and once in a run: while an old snapshot is open, that query
// reads the entries of all jobs since.
func (o *Opener) stale(ctx context.Context, jobs *map[string]int64) (stale []staleChunk, next int64, err error) {
	from, stuck := o.unopened.From(o.cluster.Horizon)
	if o.taking.staleAt > from {
		from, stuck = o.taking.staleAt, []int64{}
	}
	rows, _ := o.pool.Query(ctx, `
		SELECT id, lane
		FROM (
			(SELECT id, lane
			FROM chunk
			WHERE opened_at IS NULL AND swept_at < (SELECT `+postgres.Now+`) - make_interval(secs => $1) AND id >= $4 AND id <> ALL ($3::bigint[])
			ORDER BY id
			LIMIT $2)
			UNION ALL
			SELECT c.id, c.lane
			FROM chunk c
			WHERE c.id = ANY ($5) AND c.id < $4 AND `+chunk.StillUnopened+` AND c.id <> ALL ($3::bigint[])
		) c
		ORDER BY id`, unopenedIn.Seconds(), mostStale, o.taking.left.at(time.Now()), from, stuck) // CollectRows reports the error
	stale, err = pgx.CollectRows(rows, pgx.RowToStructByPos[staleChunk])
	if err != nil || len(stale) == 0 {
		return nil, 0, err
	}
	if len(stale) >= mostStale {
		next = stale[len(stale)-1].ID + 1
	}
	if *jobs == nil {
		if *jobs, err = o.firstJobs(ctx, o.runner.fetching(time.Now())); err != nil {
			return nil, 0, err
		}
	}
	stale = slices.DeleteFunc(stale, func(c staleChunk) bool {
		job, waits := (*jobs)[c.Lane]
		return waits && job <= c.ID
	})
	if len(stale) > mostTaken {
		stale = stale[:mostTaken]
		next = stale[mostTaken-1].ID + 1
	}
	return stale, next, nil
}

// firstJobs returns the lowest chunk of the jobs that River takes next in some lanes.
func (o *Opener) firstJobs(ctx context.Context, lanes []string) (first map[string]int64, err error) {
	if len(lanes) == 0 {
		return map[string]int64{}, nil
	}
	rows, _ := o.pool.Query(ctx, `
		SELECT l.lane, min(j.chunk) AS chunk
		FROM unnest($1::text[]) AS l (lane)
		CROSS JOIN generate_series(1, 4) AS p (priority)
		CROSS JOIN LATERAL (
			SELECT (args ->> 'chunk')::bigint AS chunk
			FROM river_job
			WHERE state = 'available' AND queue = l.lane AND priority = p.priority AND kind || '' = $2 -- the concatenation keeps the planner from an index by kind
			ORDER BY scheduled_at, id
			LIMIT 1
		) j
		GROUP BY l.lane`, lanes, chunk.JobArgs{}.Kind()) // ForEachRow reports the error
	first = map[string]int64{}
	var lane string
	var chunk int64
	_, err = pgx.ForEachRow(rows, []any{&lane, &chunk}, func() error { first[lane] = chunk; return nil })
	return first, err
}
