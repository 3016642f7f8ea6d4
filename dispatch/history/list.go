package history

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// Ticks returns a page of a tenant's ticks, newest nominal time first, and the cursor of the next page, if there may be one. It looks
// at up to 10,000 ticks, so that the page may be short if the filter leaves out many.
func (r *Reader) Ticks(ctx context.Context, tenant tenants.ID, f Filter, limit int, cursor string) (page []Tick, next *string, err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	want, err := r.pick(ctx, tenant, f)
	if err != nil {
		return nil, nil, err
	}
	if want.kept, err = r.Kept(ctx, tenant); err != nil {
		return nil, nil, err
	}
	if want.oldest.Before(want.kept.Oldest) {
		want.oldest = want.kept.Oldest
	}
	list := &tickList{d: r, tenant: tenant, want: want, limit: limit, page: []Tick{}}
	var paging web.Paging
	var at any
	switch {
	case want.ofSchedules:
		from := DeadAt{At: want.end}
		if paging, err = r.cursors.Page(int32(tenant), f.name(), limit, cursor, &from); err != nil {
			return nil, nil, err
		}
		at, err = list.ofSchedules(ctx, want.schedules, from)
	case want.state == int16(record.Failed):
		from := DeadAt{At: want.end}
		if paging, err = r.cursors.Page(int32(tenant), f.name(), limit, cursor, &from); err != nil {
			return nil, nil, err
		}
		at, err = list.ofDead(ctx, f.Workflow, from)
	default:
		from := indexEnd(want.end)
		if paging, err = r.cursors.Page(int32(tenant), f.name(), limit, cursor, &from); err != nil {
			return nil, nil, err
		}
		at, err = list.ofIndex(ctx, f.Workflow, from)
	}
	if err == nil {
		err = r.Localize(ctx, r.api, tenant, pointers(list.page)...)
	}
	if err != nil || at == nil {
		return list.page, nil, err
	}
	next, err = paging.Next(at)
	return list.page, next, err
}

// tickList collects a page of ticks.
type tickList struct {
	d      *Reader
	tenant tenants.ID
	want   picked
	limit  int
	page   []Tick
}

// add adds the ticks that are kept and that the filter picks to the page. If the page is full, it returns the tick that filled it.
func (l *tickList) add(ctx context.Context, ticks []*record.Tick) (filled *record.Tick, err error) {
	var ids []int64
	for _, t := range ticks {
		ids = append(ids, t.ScheduleID)
	}
	named, err := record.SchedulesOf(ctx, l.d.api, l.tenant, ids)
	if err != nil {
		return nil, err
	}
	at, err := record.SchedulesAt(ctx, l.d.api, l.tenant, ticks, named)
	if err != nil {
		return nil, err
	}
	for i, t := range ticks {
		w, known := named[t.ScheduleID]
		if !known || !l.want.has(t, at[i]) || l.want.kept.Over(t, w) {
			continue
		}
		l.page = append(l.page, l.d.Shown(t, at[i]))
		if len(l.page) == l.limit {
			return t, nil
		}
	}
	return nil, nil
}

// ofIndex reads ticks by the index by time.
func (l *tickList) ofIndex(ctx context.Context, workflow string, from indexAt) (next any, err error) {
	scanned, together := 0, l.limit
	if l.want.state >= 0 || l.want.cause >= 0 { // the page leaves out most ticks
		together = mostTogether
	}
	err = l.d.walkIndex(ctx, indexWalk{l.tenant, workflow, from, l.want.oldest, together}, func(keys []ident.TickKey, places []indexAt) (bool, error) {
		if len(l.page) == l.limit || scanned >= mostScanned {
			next = places[0]
			return true, nil
		}
		ticks, full, err := l.d.ticksOf(ctx, l.tenant, keys)
		if err != nil {
			return false, err
		}
		scanned += len(keys)
		filled, err := l.add(ctx, ticks)
		if full && filled == nil {
			filled = ticks[len(ticks)-1]
		}
		if err != nil || filled == nil {
			return false, err
		}
		if after := slices.Index(keys, filled.RowKey()) + 1; after < len(keys) {
			next = places[after]
			return true, nil
		}
		return false, nil
	})
	return next, err
}

const (
	mostScanned  = 10_000 // ticks looked at for one page
	mostTogether = 500
)

// ticksOf reads the ticks of keys, in their order, without those that do not exist. full reports that it stopped before the last one,
// because the page may not hold more bytes.
func (r *Reader) ticksOf(ctx context.Context, tenant tenants.ID, keys []ident.TickKey) (found []*record.Tick, full bool, err error) {
	var a record.Keys
	for _, k := range keys {
		a.Add(k, 0)
	}
	query := func() (pgx.Rows, error) {
		return r.api.Query(ctx, `
			SELECT `+record.Columns+`
			FROM unnest($2::bigint[], $3::timestamptz[], $4::int[], $5::smallint[]) WITH ORDINALITY AS i (id, at, seq, attempt, ord)
			JOIN `+record.TheTick+` ON true
			ORDER BY i.ord`, tenant, a.IDs, a.At, a.Seqs, a.Tries, a.From, a.Through)
	}
	found, full, err = web.Collect(ctx, len(keys), web.MostPage, query, pgx.RowToAddrOfStructByName[record.Tick], (*record.Tick).Held)
	if err != nil {
		return nil, false, fmt.Errorf("read ticks: %w", err)
	}
	return found, full, nil
}

// ofDead reads failed ticks from the dead letters.
func (l *tickList) ofDead(ctx context.Context, workflow string, from DeadAt) (next any, err error) {
	letters, more, err := l.d.DeadBefore(ctx, l.d.api, l.tenant, DeadFilter{Workflow: workflow, From: &l.want.oldest}, from, l.limit)
	if err != nil {
		return nil, err
	}
	ticks := make([]*record.Tick, len(letters))
	for i, one := range letters {
		ticks[i] = &one.Tick
	}
	if more {
		next = letters[len(letters)-1].Place()
	}
	_, err = l.add(ctx, ticks)
	return next, err
}

// ofSchedules reads the ticks of schedules.
func (l *tickList) ofSchedules(ctx context.Context, ids []int64, from DeadAt) (next any, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	query := func() (pgx.Rows, error) {
		return l.d.api.Query(ctx, `
			SELECT `+record.Columns+`
			FROM unnest($2::bigint[]) AS i (id)
			CROSS JOIN LATERAL (
				SELECT *
				FROM tick
				WHERE tenant_id = $1 AND schedule_id = i.id AND nominal_at >= $6 AND nominal_at <= $3
					AND (nominal_at < $3 OR i.id < $4 OR i.id = $4 AND seq < $5) AND ($7 < 0 OR state = $7) AND ($9 < 0 OR cause = $9)
				ORDER BY nominal_at DESC, seq DESC
				LIMIT $8
			) t
			ORDER BY t.nominal_at DESC, t.schedule_id DESC, t.seq DESC
			LIMIT $8`, l.tenant, ids, from.At, from.Schedule, from.Seq, l.want.oldest, l.want.state, l.limit+1, l.want.cause)
	}
	ticks, full, err := web.Collect(ctx, l.limit+1, web.MostPage, query, pgx.RowToAddrOfStructByName[record.Tick], (*record.Tick).Held)
	if err != nil {
		return nil, fmt.Errorf("read ticks of schedules: %w", err)
	}
	ticks, more := web.Trim(ticks, l.limit, full)
	if more {
		last := ticks[len(ticks)-1]
		next = DeadAt{last.NominalAt.UTC(), last.ScheduleID, last.Seq}
	}
	_, err = l.add(ctx, ticks)
	return next, err
}
