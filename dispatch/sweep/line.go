package sweep

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/cluster"
	"github.com/carillonhq/carillon/tenants"
)

const mostLines = 10_000 // that are remembered

// lines remembers of tenants who wait in line in a shard since when the first of their cohorts waited, when it was looked last. Whoever
// comes into the line later waits since the clock of a later sweep, as sweeps of a shard follow one another.
type lines struct {
	mu    sync.Mutex
	since map[lineName]lineSince
	whole cluster.Seldom
}

type lineName struct {
	shard  int16
	tenant tenants.ID
}

type lineSince struct {
	at  time.Time
	era int // of the horizon
}

// from returns where reading a line begins; the zero time: at its low end.
func (l *lines) from(name lineName, h *cluster.Horizon) time.Time {
	_, era := h.Chunks()
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, is := l.since[name]; is && known.era == era {
		return known.at
	}
	return time.Time{}
}

// began notes the first of a line.
func (l *lines) began(name lineName, at time.Time, h *cluster.Horizon) {
	_, era := h.Chunks()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since == nil || len(l.since) >= mostLines {
		l.since = map[lineName]lineSince{}
	}
	l.since[name] = lineSince{at, era}
}

// lineOf reads the first cohorts of a tenant that wait in line. Where they seem to be all, it sometimes reads the line from its low
// end, should a cohort wait there since an earlier time all the same.
func (p *pass) lineOf(ctx context.Context, tenant tenants.ID, limit int) (cohorts []*due, err error) {
	name := lineName{p.shard, tenant}
	from := p.lines.from(name, p.horizon)
	if cohorts, err = p.readLine(ctx, tenant, from, limit); err != nil {
		return nil, err
	}
	if len(cohorts) < limit && !from.IsZero() {
		if p.lines.wholeDue() {
			began := time.Now()
			if cohorts, err = p.readLine(ctx, tenant, time.Time{}, limit); err != nil {
				return nil, err
			}
			p.lines.wholeEnded(began)
		}
	}
	if len(cohorts) > 0 && cohorts[0].WaitAt != nil {
		p.lines.began(name, *cohorts[0].WaitAt, p.horizon)
	}
	return cohorts, nil
}

func (p *pass) readLine(ctx context.Context, tenant tenants.ID, from time.Time, limit int) ([]*due, error) {
	rows, _ := p.tx.Query(ctx, `
		SELECT `+DueColumns+`
		FROM cohort c
		WHERE c.shard = $1 AND c.tenant_id = $2 AND c.wait_at IS NOT NULL AND c.wait_at >= $4 AND c.due_at = 'infinity'
		ORDER BY c.wait_at, c.id
		LIMIT $3`, p.shard, tenant, limit, from) // ForEachRow reports the error
	cohorts, err := collectDue(rows)
	if err != nil {
		return nil, fmt.Errorf("read waiting cohorts: %w", err)
	}
	return cohorts, nil
}

func (l *lines) wholeDue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.whole.Due(time.Now())
}

func (l *lines) wholeEnded(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole.Ended(began, time.Now())
}
