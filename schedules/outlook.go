package schedules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
	"weak"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
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
	CohortTiming
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
	names := make([]CohortTiming, len(lots))
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
		o.weekly += lots[i].n * float64(s.Timings.weekly(t, now))
	}
	return o, nil
}

// lots are the timings of a tenant. Where there are too many, those with fewest members are told by some of them, each of
// which stands for several; sampled says so.
func (s *Schedules) lots(ctx context.Context, tenant tenants.ID) (lots []lot, sampled bool, err error) {
	const crowd = `(
			SELECT cohort_id, max(shard) AS shard, sum(n) AS n
			FROM (
				SELECT cohort_id, shard, n FROM tally WHERE tenant_id = $1 AND cohort_id > 0
				UNION ALL
				SELECT cohort_id, NULL, n FROM tally_delta WHERE tenant_id = $1 AND cohort_id > 0
			) u
			GROUP BY cohort_id
			HAVING sum(n) > 0
		) t`
	const joined = `
		JOIN cohort c ON c.shard = t.shard AND c.id = t.cohort_id AND c.tenant_id = $1
		WHERE c.due_at IS NOT NULL`
	byHash := map[[16]byte]int{}
	read := func(weight float64, sql string, args ...any) (cohorts int, sum float64, err error) {
		rows, err := s.Pool.Query(ctx, sql, args...)
		if err != nil {
			return 0, 0, err
		}
		defer rows.Close()
		for rows.Next() {
			l := lot{CohortTiming: CohortTiming{Tenant: tenant}}
			if err := rows.Scan(&l.Shard, &l.ID, &l.Hash, &l.n); err != nil {
				return 0, 0, err
			}
			cohorts, sum = cohorts+1, sum+l.n
			l.n *= weight
			if at, known := byHash[[16]byte(l.Hash)]; known {
				lots[at].n += l.n
				continue
			}
			byHash[[16]byte(l.Hash)] = len(lots)
			lots = append(lots, l)
		}
		return cohorts, sum, rows.Err()
	}
	found, top, err := read(1, `
		SELECT c.shard, c.id, c.hash, t.n::float8
		FROM (SELECT * FROM `+crowd+` ORDER BY n DESC, cohort_id LIMIT $2) t`+joined, tenant, mostLots)
	if err != nil {
		return nil, false, fmt.Errorf("read cohorts with most members: %w", err)
	}
	if found < mostLots {
		return lots, false, nil
	}
	var cohorts int
	var all, least float64
	err = s.Pool.QueryRow(ctx, `
		SELECT count(*), COALESCE(sum(n), 0)::float8,
			COALESCE((SELECT n FROM `+crowd+` ORDER BY n DESC, cohort_id OFFSET $2 LIMIT 1), 0)::float8
		FROM `+crowd, tenant, mostLots).Scan(&cohorts, &all, &least)
	if err != nil {
		return nil, false, fmt.Errorf("count cohorts: %w", err)
	}
	if cohorts <= mostLots {
		return lots, false, nil
	}
	every := (cohorts-mostLots)/sampledLots + 1
	rest := all - top
	// The sample is of cohorts no larger than those that are left; each stands for its part of their members.
	var sum float64
	err = s.Pool.QueryRow(ctx, `SELECT COALESCE(sum(n), 0)::float8 FROM `+crowd+` WHERE cohort_id % $2 = 0 AND n <= $3`, tenant, every, least).Scan(&sum)
	if err != nil || sum == 0 {
		return lots, true, err
	}
	_, _, err = read(rest/sum, `
		SELECT c.shard, c.id, c.hash, t.n::float8
		FROM (SELECT * FROM `+crowd+` WHERE cohort_id % $2 = 0 AND n <= $3 LIMIT $4) t`+joined, tenant, every, least, 2*sampledLots)
	if err != nil {
		return nil, false, fmt.Errorf("read some of the other cohorts: %w", err)
	}
	return lots, true, nil
}

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

// weekly is how many ticks a timing has in the seven days from the day of now on.
func (ts *Timings) weekly(t *calendar.Timing, now time.Time) int {
	day := now.Unix() / secondsPerDay
	if known, ok := ts.weeks.Get(weak.Make(t)); ok && known.day == day {
		return known.ticks
	}
	from := time.Unix(day*secondsPerDay, 0).UTC()
	const week = 7 * 24 * time.Hour
	ticks := 0
	if every, ok := t.FixedDelay(); ok {
		ticks = int(week / every)
	} else if gap := t.MinGap(from); gap == 0 || gap >= time.Minute {
		ticks = t.Count(from, from.Add(week))
	} else {
		ticks = 7 * t.Count(from, from.Add(week/7)) // where ticks are listed to be counted, a week of seconds are many
	}
	ts.weeks.Add(weak.Make(t), week7{day, ticks})
	return ticks
}

// week7 is how many ticks a timing has in the week that begins with a day.
type week7 struct {
	day   int64
	ticks int
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
	outlookPart   = 50                    // a refresh is worth that many times its cost in time
	outlookInline = 60 * time.Millisecond // more than that a single upsert does not wait
)

// outlooks keeps an outlook of each tenant that is asked for, at most some seconds old, or some minutes where it takes
// seconds to reckon.
type outlooks struct {
	kept  *lru.Cache[tenants.ID, *watched]
	queue chan tenants.ID // of those that are reckoned in the background
}

func newOutlooks() *outlooks {
	return &outlooks{kept: kept[tenants.ID, *watched](outlooksKept), queue: make(chan tenants.ID, 100)}
}

func (os *outlooks) of(tenant tenants.ID) *watched {
	if w, ok := os.kept.Get(tenant); ok {
		return w
	}
	w := &watched{}
	if known, there, _ := os.kept.PeekOrAdd(tenant, w); there {
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

func (s *Schedules) reckon(ctx context.Context, tenant tenants.ID, w *watched) error {
	began := time.Now()
	o, err := s.lookOut(ctx, tenant, began, outlookHours)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	if err != nil {
		return err
	}
	w.latest, w.took = o, time.Since(began)
	w.heavy = w.took > outlookInline
	return nil
}

// outlook is that of a tenant, at most some seconds old; one that takes long to reckon is older, and nil at first.
func (s *Schedules) outlook(ctx context.Context, tenant tenants.ID) *watched {
	w := s.outlooks.of(tenant)
	if !w.begin(outlookAge) {
		return w
	}
	w.mu.Lock()
	heavy := w.heavy
	w.mu.Unlock()
	if !heavy {
		short, cancel := context.WithTimeout(ctx, outlookInline)
		defer cancel()
		err := s.reckon(short, tenant, w)
		if err == nil {
			return w
		}
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			s.Log.Warn("cannot reckon what is due ahead", "tenant", tenant, "error", err)
			return w
		}
		w.mu.Lock()
		w.heavy, w.busy = true, true
		w.mu.Unlock()
	}
	select {
	case s.outlooks.queue <- tenant:
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
		case tenant := <-s.outlooks.queue:
			if err := s.reckon(postgres.ForTenant(ctx, int32(tenant)), tenant, s.outlooks.of(tenant)); err != nil && ctx.Err() == nil {
				s.Log.Warn("cannot reckon what is due ahead", "tenant", tenant, "error", err)
			}
		}
	}
}
