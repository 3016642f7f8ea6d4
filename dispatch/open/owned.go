package open

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/dispatch/push"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// openChunks holds the floors of the index by owner and opened_at, for this process and for dead ones. Only takeOver uses it.
type openChunks struct {
	floors  map[int64]*cluster.Floor
	orphans cluster.Seldom
	search  cluster.Search
}

// taking is what the takeover of chunks remembers.
type taking struct {
	chunks  openChunks
	left    leftChunks
	staleAt int64 // where OpenStale goes on
}

// look begins a reading of a process's open chunks.
func (o *openChunks) look(process int64, h *cluster.Horizon, full bool) cluster.Look {
	if o.floors == nil {
		o.floors = map[int64]*cluster.Floor{}
	}
	if o.floors[process] == nil {
		o.floors[process] = &cluster.Floor{}
	}
	return o.floors[process].Look(h, full)
}

// FirstOpen returns a time before which this process has no open chunk.
func (o *Opener) FirstOpen() time.Time {
	self, _ := o.cluster.Member.Self()
	return o.taking.chunks.look(self, o.cluster.Horizon, false).From
}

// ownChunk is an open chunk of this process.
type ownChunk struct {
	ID     int64
	Epoch  int32
	Opened time.Time
	Old    bool
}

// lostAfter is how long after its opening a chunk must be known to the sender of the process that owns it.
const lostAfter = 3 * time.Second

// TakeOwned takes over the open chunks of dead processes, and the lost chunks of this process: chunks that it owns and its sender does
// not know.
func (o *Opener) TakeOwned(ctx context.Context) error {
	self, _ := o.cluster.Member.Self()
	began := time.Now()
	all := o.taking.chunks.orphans.Due(began)
	l := o.taking.chunks.look(self, o.cluster.Horizon, false)
	doubtful := o.push.Doubts().Some(mostTaken)
	var dead, orphans []int64
	var mine []ownChunk
	var b pgx.Batch
	b.Queue(deadProcesses, cluster.DeadAfter.Seconds()).Query(func(rows pgx.Rows) (err error) {
		dead, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	if all {
		b.Queue(OrphanOwners).Query(func(rows pgx.Rows) (err error) {
			orphans, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	}
	add := func(rows pgx.Rows) (err error) {
		mine, err = pgx.AppendRows(mine, rows, pgx.RowToStructByPos[ownChunk])
		return err
	}
	b.Queue(`
		SELECT id, epoch, opened_at, opened_at < `+postgres.Now+` - make_interval(secs => $2)
		FROM chunk
		WHERE owner = $1 AND opened_at >= $3 AND done_at IS NULL
		ORDER BY id`, self, lostAfter.Seconds(), l.From).Query(add)
	if len(doubtful) > 0 {
		b.Queue(`
			SELECT id, epoch, opened_at, opened_at < `+postgres.Now+` - make_interval(secs => $2)
			FROM chunk
			WHERE id = ANY ($4) AND owner = $1 AND opened_at < $3 AND done_at IS NULL
			ORDER BY id`, self, lostAfter.Seconds(), l.From, doubtful).Query(add)
	}
	if err := o.pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("look for chunks to take: %w", err)
	}
	if all {
		o.taking.chunks.orphans.Ended(began, time.Now())
	}
	for id := range o.taking.chunks.floors {
		if id != self && !slices.Contains(dead, id) {
			delete(o.taking.chunks.floors, id)
		}
	}
	lost, first := o.lostOf(mine)
	l.Found(first)
	o.push.Doubts().Remove(doubtful)
	if err := errors.Join(o.takeOpen(ctx, dead, false), o.takeOpen(ctx, orphans, true), o.takeLost(ctx, lost)); err != nil {
		return err
	}
	return o.searchOwned(ctx, self)
}

// ownBelow reads the open chunks of a process $1 that were opened from $2 up to $3, and at least $4 seconds ago.
var ownBelow = cluster.WithEntries(`
		SELECT id, epoch, opened_at
		FROM chunk
		WHERE owner = $1 AND opened_at >= $2 AND opened_at < $3 AND opened_at < `+postgres.Now+` - make_interval(secs => $4) AND done_at IS NULL
		ORDER BY id`, "chunk_open")

// searchOwned searches below the floor for lost chunks of this process, and takes them.
func (o *Opener) searchOwned(ctx context.Context, self int64) error {
	w, is := o.taking.chunks.search.Begin(o.cluster.Horizon, time.Now())
	if !is {
		return nil
	}
	rows, _ := o.pool.Query(ctx, ownBelow, self, w.From, w.To, lostAfter.Seconds()) // ForEachRow reports the error
	var mine []ownChunk
	var id pgtype.Int8
	var epoch pgtype.Int4
	var opened pgtype.Timestamptz
	var entries int
	_, err := pgx.ForEachRow(rows, []any{&id, &epoch, &opened, &entries}, func() error {
		if id.Valid {
			mine = append(mine, ownChunk{ID: id.Int64, Epoch: epoch.Int32, Opened: opened.Time, Old: true})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("search for lost chunks: %w", err)
	}
	o.taking.chunks.search.Ended(w, entries, time.Now())
	lost, _ := o.lostOf(mine)
	o.push.Doubts().Add(lost[min(len(lost), mostTaken):])
	return o.takeLost(ctx, lost)
}

// lostOf returns the open chunks of this process that its sender should know and does not. first is the opening time of the earliest chunk
// that the sender does not know.
func (o *Opener) lostOf(mine []ownChunk) (lost []int64, first time.Time) {
	all := make([]push.Sending, len(mine))
	for i, c := range mine {
		all[i].Chunk, all[i].Epoch = c.ID, c.Epoch
	}
	unknown := map[int64]bool{}
	for _, id := range o.push.Unknown(all) {
		unknown[id] = true
	}
	for _, c := range mine {
		if !unknown[c.ID] {
			continue
		}
		first = cluster.Earliest(first, c.Opened)
		if c.Old {
			lost = append(lost, c.ID)
		}
	}
	return lost, first
}

// takeLost takes lost chunks of this process under a higher epoch. A chunk is lost if the connection broke while the process committed the
// opening, or while it marked the chunk done.
func (o *Opener) takeLost(ctx context.Context, lost []int64) error {
	if len(lost) == 0 {
		return nil
	}
	self, _ := o.cluster.Member.Self()
	rows, _ := o.pool.Query(ctx, `
		UPDATE chunk
		SET epoch = epoch + 1
		WHERE id = ANY($1) AND owner = $2 AND done_at IS NULL
		RETURNING `+chunk.Columns, lost[:min(len(lost), mostTaken)], self) // CollectRows reports the error
	taken, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[chunk.Chunk])
	if err != nil {
		return fmt.Errorf("take lost chunks: %w", err)
	}
	return o.sendAll(ctx, taken, self)
}

// deadProcesses reads the known processes without a heartbeat for $1 seconds.
const deadProcesses = cluster.KnownProcesses + ` AND beat_at <= (SELECT ` + postgres.Now + `) - make_interval(secs => $1)`

// OrphanOwners reads the owners of open chunks that are not known processes any more.
var OrphanOwners = `WITH RECURSIVE ` + chunk.OwningChunks(cluster.KnownProcesses) + ` SELECT owner FROM owning`

// firstOwned reads when the first open chunk of each process $1 was opened, from $2 on.
const firstOwned = `
		SELECT o.owner, c.opened_at
		FROM unnest($1::bigint[], $2::timestamptz[]) AS o (owner, from_at)
		LEFT JOIN LATERAL (
			SELECT opened_at
			FROM chunk
			WHERE owner = o.owner AND opened_at >= o.from_at AND done_at IS NULL
			ORDER BY opened_at
			LIMIT 1
		) c ON true`

// TakeOwnedBy takes over open chunks of the processes $2, from $4 on.
const TakeOwnedBy = `
			UPDATE chunk
			SET owner = $1, epoch = epoch + 1, opened_at = ` + postgres.Now + `
			WHERE id IN (
				SELECT c.id
				FROM unnest($2::bigint[], $4::timestamptz[]) AS o (owner, from_at)
				CROSS JOIN LATERAL (
					SELECT id
					FROM chunk
					WHERE owner = o.owner AND opened_at >= o.from_at AND done_at IS NULL
					ORDER BY opened_at
					LIMIT $3
					FOR UPDATE SKIP LOCKED
				) c
				LIMIT $3)
			RETURNING ` + chunk.Columns

// takeOpen makes this process the owner of the open chunks of dead processes, and sends their ticks without a result.
func (o *Opener) takeOpen(ctx context.Context, dead []int64, full bool) error {
	if len(dead) == 0 {
		return nil
	}
	owners, from, err := o.owning(ctx, dead, full)
	if err != nil || len(owners) == 0 {
		return err
	}
	for {
		self, alive := o.cluster.Member.Self()
		if !alive {
			return nil
		}
		rows, _ := o.pool.Query(ctx, TakeOwnedBy, self, owners, mostTaken, from) // CollectRows reports the error
		taken, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByName[chunk.Chunk])
		if err != nil {
			return fmt.Errorf("take chunks: %w", err)
		}
		if len(taken) > 0 {
			o.log.Info("took over chunks of a dead process", "chunks", len(taken))
			sabotage.Crash("take_over.committed")
		}
		if err := o.sendAll(ctx, taken, self); err != nil || len(taken) < mostTaken {
			return err
		}
	}
}

// owning returns which of some processes own open chunks, and when the first of each was opened.
func (o *Opener) owning(ctx context.Context, dead []int64, full bool) (owners []int64, first []time.Time, err error) {
	looks := make(map[int64]cluster.Look, len(dead))
	from := make([]time.Time, len(dead))
	for i, id := range dead {
		looks[id] = o.taking.chunks.look(id, o.cluster.Horizon, full)
		from[i] = looks[id].From
	}
	rows, _ := o.pool.Query(ctx, firstOwned, dead, from) // ForEachRow reports the error
	var id int64
	var at *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &at}, func() error {
		if at == nil {
			looks[id].Found(time.Time{})
			return nil
		}
		looks[id].Found(*at)
		owners, first = append(owners, id), append(first, *at)
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("look for chunks of dead processes: %w", err)
	}
	return owners, first, nil
}
