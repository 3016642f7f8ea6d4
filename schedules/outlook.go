package schedules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// outlook is what the stored schedules of a tenant ask for: how many ticks are due in each minute of a window, and in a
// week. It follows from the cohorts and how many members each has, and costs the same for a million members as for one.
type outlook struct {
	now       time.Time
	from      time.Time // the whole minute of now
	minutes   []float64
	weekly    float64
	truncated bool // some of it is estimated
}

const (
	outlookHours  = 24
	mostLots      = 2_000 // timings with most members, each reckoned by itself
	sampledLots   = 1_000 // of the others, which are reckoned by these
	mostSteps     = 3_000_000
	leastSteps    = 1_500 // of a timing: a tick in each minute of a day is reckoned to the end
	lookOutWithin = 10 * time.Second
)

// lot is a timing with how many schedules fire by it.
type lot struct {
	cohorts.CohortTiming
	n float64
}

// lookOut reckons the outlook of the hours from now on.
func (s *Schedules) lookOut(ctx context.Context, tenant tenants.ID, now time.Time, hours int) (*outlook, error) {
	ctx, cancel := context.WithTimeout(ctx, lookOutWithin)
	defer cancel()
	lots, sampled, err := s.lots(ctx, tenant)
	if err != nil {
		return nil, err
	}
	names := make([]cohorts.CohortTiming, len(lots))
	for i, l := range lots {
		names[i] = l.CohortTiming
	}
	timings, _, err := s.Timings.Of(ctx, s.Pool, names)
	if err != nil {
		return nil, err
	}
	from := now.UTC().Truncate(time.Minute)
	o := &outlook{now: now.UTC(), from: from, minutes: make([]float64, hours*60), truncated: sampled}
	most := max(leastSteps, mostSteps/max(1, len(lots)))
	for i, t := range timings {
		if t == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if o.add(t, lots[i].n, most) {
			o.truncated = true
		}
		o.weekly += lots[i].n * float64(s.Timings.Weekly(t, now))
	}
	return o, nil
}

// lots are the timings of a tenant. Where there are too many, those with fewest members are told by some of them, each of
// which stands for several; sampled says so.
func (s *Schedules) lots(ctx context.Context, tenant tenants.ID) (lots []lot, sampled bool, err error) {
	byHash := map[[16]byte]int{}
	var top, all, sum float64 // members: of the largest, of all, and of those that stand for the others
	rows, err := s.Pool.Query(ctx, lotsQuery, tenant, mostLots, sampledLots)
	if err != nil {
		return nil, false, fmt.Errorf("read cohorts: %w", err)
	}
	defer rows.Close()
	var others []lot
	count := 0
	for rows.Next() {
		l := lot{CohortTiming: cohorts.CohortTiming{Tenant: tenant}}
		var large, due bool
		if err := rows.Scan(&l.Shard, &l.ID, &l.Hash, &l.n, &large, &due, &all, &count); err != nil {
			return nil, false, fmt.Errorf("read cohorts: %w", err)
		}
		if large {
			top += l.n
		} else {
			sum += l.n
		}
		switch at, known := byHash[[16]byte(l.Hash)]; {
		case !due:
		case !large:
			others = append(others, l)
		case known:
			lots[at].n += l.n
		default:
			byHash[[16]byte(l.Hash)] = len(lots)
			lots = append(lots, l)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("read cohorts: %w", err)
	}
	for _, l := range others {
		l.n *= (all - top) / sum
		if at, known := byHash[[16]byte(l.Hash)]; known {
			lots[at].n += l.n
			continue
		}
		byHash[[16]byte(l.Hash)] = len(lots)
		lots = append(lots, l)
	}
	return lots, count > mostLots, nil
}

// lotsQuery reads the tallies of a tenant's cohorts once: the $2 with most members, then some of the others, $3 or a little
// more, which each stand for several. The members of all come with each row.
var lotsQuery = `
	WITH crowd AS MATERIALIZED (
		SELECT t.cohort_id, t.shard, t.n + COALESCE(d.n, 0) AS n
		FROM tally t
		LEFT JOIN (
			SELECT cohort_id, sum(n)::bigint AS n
			FROM tally_delta
			WHERE tenant_id = $1 AND cohort_id > 0 AND ` + Unfolded("tally_delta") + `
			GROUP BY cohort_id
		) d USING (cohort_id)
		WHERE t.tenant_id = $1 AND t.cohort_id > 0 AND t.n + COALESCE(d.n, 0) > 0
	), whole AS MATERIALIZED (
		SELECT count(*) AS cohorts, COALESCE(sum(n), 0)::float8 AS members FROM crowd
	), top AS MATERIALIZED (
		SELECT cohort_id, shard, n FROM crowd ORDER BY n DESC, cohort_id LIMIT $2
	), least AS MATERIALIZED (
		SELECT n, cohort_id FROM top ORDER BY n, cohort_id DESC LIMIT 1
	), picked AS MATERIALIZED (
		SELECT cohort_id, shard, n, true AS large FROM top
		UNION ALL
		(SELECT c.cohort_id, c.shard, c.n, false
		FROM crowd c, whole w, least l
		WHERE w.cohorts > $2 AND c.cohort_id % ((w.cohorts - $2) / $3 + 1) = 0 AND (c.n < l.n OR c.n = l.n AND c.cohort_id > l.cohort_id)
		LIMIT 2 * $3)
	)
	SELECT p.shard, p.cohort_id, c.hash, p.n::float8, p.large, c.due_at IS NOT NULL, w.members, w.cohorts
	FROM whole w, picked p
	JOIN cohort c ON c.shard = p.shard AND c.id = p.cohort_id AND c.tenant_id = $1`

// add lays the ticks of n schedules of one timing into the minutes. After most of them the rest is taken to go on as
// they did, and cut is true.
func (o *outlook) add(t *calendar.Timing, n float64, most int) (cut bool) {
	end := o.from.Add(time.Duration(len(o.minutes)) * time.Minute)
	at := o.now.Add(-time.Nanosecond)
	for step := 0; ; step++ {
		tick, ok := t.Next(at)
		if !ok || !tick.At.Before(end) {
			return false
		}
		if step == most {
			perSecond := float64(most) / max(1, tick.At.Sub(o.now).Seconds())
			o.lay(tick.At, end.Sub(tick.At), n*perSecond*end.Sub(tick.At).Seconds())
			return true
		}
		o.lay(tick.At, t.Jitter(), n)
		at = tick.At
	}
}

// lay lays n ticks into the minutes from an instant on, evenly over a width.
func (o *outlook) lay(at time.Time, width time.Duration, n float64) {
	first := at.Sub(o.from)
	if width <= 0 {
		o.minutes[int(first/time.Minute)] += n
		return
	}
	for begin, end := first, first+width; begin < end; {
		i := int(begin / time.Minute)
		if i >= len(o.minutes) {
			return
		}
		upto := min(end, time.Duration(i+1)*time.Minute)
		o.minutes[i] += n * float64(upto-begin) / float64(width)
		begin = upto
	}
}

// minute is which of the minutes an instant lies in; false where it lies in none.
func (o *outlook) minute(at time.Time) (i int, ok bool) {
	i = int(math.Floor(at.Sub(o.from).Minutes()))
	return i, i >= 0 && i < len(o.minutes)
}

// watched is the outlook of one tenant as it is kept. What this process stores is added to it at once.
type watched struct {
	mu     sync.Mutex
	latest *outlook // nil: none yet
	took   time.Duration
	busy   bool // somebody reckons it
	heavy  bool // it takes too long for a request to wait for it
}

const (
	outlooksKept  = 2_000
	outlookAge    = 5 * time.Second
	outlookPart   = 50 // a refresh is worth that many times its cost in time
	outlookWithin = 60 * time.Millisecond
)

// outlooks keeps an outlook of each tenant that is asked for, at most some seconds old, or some minutes where it takes
// seconds to reckon.
type outlooks struct {
	kept  *lru.Cache[outlookOf, *watched]
	queue chan outlookOf // of those that are reckoned in the background
}

// outlookOf names an outlook: of a tenant, and of so many hours.
type outlookOf struct {
	tenant tenants.ID
	hours  int
}

func newOutlooks() *outlooks {
	return &outlooks{kept: cohorts.Kept[outlookOf, *watched](outlooksKept), queue: make(chan outlookOf, 100)}
}

// of is the outlook of a tenant's next day.
func (os *outlooks) of(tenant tenants.ID) *watched { return os.named(outlookOf{tenant, outlookHours}) }

func (os *outlooks) named(name outlookOf) *watched {
	if w, ok := os.kept.Get(name); ok {
		return w
	}
	w := &watched{}
	if known, there, _ := os.kept.PeekOrAdd(name, w); there {
		return known
	}
	return w
}

// begin tells whether the caller is to reckon the outlook, as it is older than age and nobody else does.
func (w *watched) begin(age time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy || w.latest != nil && time.Since(w.latest.now) < max(age, outlookPart*w.took) {
		return false
	}
	w.busy = true
	return true
}

func (s *Schedules) reckon(ctx context.Context, name outlookOf, w *watched) error {
	began := time.Now()
	o, err := s.lookOut(ctx, name.tenant, began, name.hours)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	if err != nil {
		return err
	}
	w.latest, w.took = o, time.Since(began)
	w.heavy = w.took > s.OutlookWithin
	return nil
}

// outlook is that of a tenant's next day, at most some seconds old; one that takes long to reckon is older, and nil at first.
func (s *Schedules) outlook(ctx context.Context, tenant tenants.ID) *watched {
	return s.outlookNamed(ctx, outlookOf{tenant, outlookHours})
}

func (s *Schedules) outlookNamed(ctx context.Context, name outlookOf) *watched {
	w := s.outlooks.named(name)
	if !w.begin(outlookAge) {
		return w
	}
	w.mu.Lock()
	heavy := w.heavy
	w.mu.Unlock()
	if !heavy {
		short, cancel := context.WithTimeout(ctx, s.OutlookWithin)
		defer cancel()
		err := s.reckon(short, name, w)
		if err == nil {
			return w
		}
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			s.Log.Warn("cannot reckon what is due ahead", "tenant", name.tenant, "error", err)
			return w
		}
		w.mu.Lock()
		w.heavy, w.busy = true, true
		w.mu.Unlock()
	}
	select {
	case s.outlooks.queue <- name:
	default:
		w.mu.Lock()
		w.busy = false
		w.mu.Unlock()
	}
	return w
}

// Ahead is how many ticks are due ahead.
type Ahead struct {
	Minute int64 `json:"minute"` // within this minute and the next
	Hour   int64 `json:"hour"`
	Day    int64 `json:"day"`
}

// Ahead tells how many ticks of a tenant's schedules are due ahead, as of some seconds ago; nil while nobody has reckoned it,
// which takes some seconds where timings are many.
func (s *Schedules) Ahead(ctx context.Context, tenant tenants.ID) *Ahead {
	w := s.outlook(ctx, tenant)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest == nil {
		return nil
	}
	var a Ahead
	now, ok := w.latest.minute(time.Now())
	if !ok {
		now = 0
	}
	for i, n := range w.latest.minutes[now:] {
		ticks := max(0, int64(math.Round(n)))
		a.Day += ticks
		if i < secondsPerMinute { // minutes of an hour
			a.Hour += ticks
		}
		if i < 2 { // the rest of this one, and the next
			a.Minute += ticks
		}
	}
	return &a
}

// LookAhead reckons in the background, until ctx ends, the outlooks that take too long for requests to wait for them.
func (s *Schedules) LookAhead(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-s.outlooks.queue:
			if err := s.reckon(postgres.ForTenant(ctx, int32(name.tenant)), name, s.outlooks.named(name)); err != nil && ctx.Err() == nil {
				s.Log.Warn("cannot reckon what is due ahead", "tenant", name.tenant, "error", err)
			}
		}
	}
}
