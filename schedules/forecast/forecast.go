package forecast

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
)

// Config has the dependencies of Forecasts. All members but Within are required.
type Config struct {
	Pool    postgres.DB // it shows only the rows of the tenant that a context names
	Timings *cohorts.Timings
	Quotas  func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
	Log     *slog.Logger

	// Within is how long a request waits for a forecast that is not cached; 0: 60 ms. What takes longer is computed in the
	// background, and warned of from then on.
	Within time.Duration
}

// Forecasts counts what tenants store, and forecasts the ticks of their schedules. It is safe for concurrent use.
type Forecasts struct {
	pool    postgres.DB
	timings *cohorts.Timings
	quotas  func(ctx context.Context, tenant tenants.ID) (tenants.Quotas, error)
	log     *slog.Logger
	within  time.Duration

	cache  *cache
	shards sync.Map     // tenants.ID to int16: the fewest shards that its schedules are on
	counts recentCounts // of schedules
	bytes  recentCounts // of stored bytes
}

// New returns Forecasts over a pool whose database is migrated.
func New(c Config) *Forecasts {
	return &Forecasts{pool: c.Pool, timings: c.Timings, quotas: c.Quotas, log: c.Log, within: cmp.Or(c.Within, defaultWithin), cache: newCache()}
}

// estimate holds how many ticks of a tenant's stored schedules are due in each minute of a window, and in a week. It is computed from the
// cohorts and their numbers of members, so a million members cost the same as one.
type estimate struct {
	now       time.Time
	from      time.Time // the whole minute of now
	minutes   []float64
	lanes     []*lane     // rates of workflows and endpoints
	also      [][]float64 // minutes of the lanes that the timing now being added passes
	weekly    float64
	truncated bool // some of it is estimated
}

const (
	defaultHours   = 24
	mostGroups     = 2_000 // timings with most members, each computed by itself
	sampledGroups  = 1_000 // of the others: they stand for the rest
	mostSteps      = 3_000_000
	leastSteps     = 1_500 // of a timing: enough for a tick in each minute of a day
	computeTimeout = 10 * time.Second
)

// group is a timing with how many schedules fire by it.
type group struct {
	cohorts.CohortTiming
	workflow string // of all its schedules, if groups are kept apart by workflow
	n        float64
}

// computeNow computes the ticks that are due in the hours from now on, of one workflow or of all.
func (f *Forecasts) computeNow(ctx context.Context, tenant tenants.ID, workflow string, now time.Time, hours int) (*estimate, error) {
	ctx, cancel := context.WithTimeout(ctx, computeTimeout)
	defer cancel()
	lanes, err := f.lanes(ctx, tenant, hours*60)
	if err != nil {
		return nil, err
	}
	groups, sampled, err := f.groups(ctx, tenant, workflow, len(lanes) > 0)
	if err != nil {
		return nil, err
	}
	timings, err := f.timingsOf(ctx, groups)
	if err != nil {
		return nil, err
	}
	from := now.UTC().Truncate(time.Minute)
	o := &estimate{now: now.UTC(), from: from, minutes: make([]float64, hours*60), lanes: lanes, truncated: sampled}
	most := max(leastSteps, mostSteps/max(1, len(groups)))
	for i, t := range timings {
		if t == nil {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		o.also = o.lanesOf(groups[i].workflow)
		if o.add(t, groups[i].n, most) {
			o.truncated = true
		}
		o.weekly += groups[i].n * float64(f.timings.Weekly(t, now))
	}
	o.also = nil
	return o, nil
}

// add adds the ticks of n schedules of one timing to the minutes. If the timing has more ticks than most, it assumes that the others
// continue at the same rate, and cut is true.
func (o *estimate) add(t *calendar.Timing, n float64, most int) (cut bool) {
	end := o.from.Add(time.Duration(len(o.minutes)) * time.Minute)
	at := o.now.Add(-time.Nanosecond)
	for step := 0; ; step++ {
		tick, ok := t.Next(at)
		if !ok || !tick.At.Before(end) {
			return false
		}
		if step == most {
			perSecond := float64(most) / max(1, tick.At.Sub(o.now).Seconds())
			o.spread(tick.At, end.Sub(tick.At), n*perSecond*end.Sub(tick.At).Seconds())
			return true
		}
		o.spread(tick.At, t.Jitter(), n)
		at = tick.At
	}
}

// lay adds n ticks to a minute, and to the same minute of the lanes that they pass.
func (o *estimate) lay(minute int, n float64) {
	o.minutes[minute] += n
	for _, m := range o.also {
		m[minute] += n
	}
}

// spread adds n ticks to the minutes, evenly over a width of time from an instant on.
func (o *estimate) spread(at time.Time, width time.Duration, n float64) {
	first := at.Sub(o.from)
	if width <= 0 {
		o.lay(int(first/time.Minute), n)
		return
	}
	for begin, end := first, first+width; begin < end; {
		i := int(begin / time.Minute)
		if i >= len(o.minutes) {
			return
		}
		upto := min(end, time.Duration(i+1)*time.Minute)
		o.lay(i, n*float64(upto-begin)/float64(width))
		begin = upto
	}
}

// minute returns the index of the minute that contains an instant, or false if no minute contains it.
func (o *estimate) minute(at time.Time) (i int, ok bool) {
	i = int(math.Floor(at.Sub(o.from).Minutes()))
	return i, i >= 0 && i < len(o.minutes)
}

// Cached is the forecast of one tenant in the cache. What this process stores is added to it at once.
type Cached struct {
	mu     sync.Mutex
	latest *estimate // nil: none yet
	took   time.Duration
	busy   bool // it is being computed
	heavy  bool // it takes too long for a request to wait for it
}

const (
	mostCached    = 2_000
	maxAge        = 5 * time.Second
	costShare     = 50 // a forecast is kept for at least so many times the time that it took to compute
	defaultWithin = 60 * time.Millisecond
)

// cache keeps the forecasts of the tenants that were asked for. An entry is at most some seconds old, or some minutes if it
// takes seconds to compute.
type cache struct {
	entries *lru.Cache[cacheKey, *Cached]
	queue   chan cacheKey // entries to compute in the background
}

// cacheKey names a forecast: a tenant, a number of hours, and a workflow, or "" for all.
type cacheKey struct {
	tenant   tenants.ID
	hours    int
	workflow string
}

func newCache() *cache {
	return &cache{entries: cohorts.Kept[cacheKey, *Cached](mostCached), queue: make(chan cacheKey, 100)}
}

// Known returns the cached forecast of a tenant's next day, and computes nothing.
func (f *Forecasts) Known(tenant tenants.ID) *Cached {
	return f.cache.named(cacheKey{tenant: tenant, hours: defaultHours})
}

// named returns the entry of that name, and makes it if there is none.
func (c *cache) named(name cacheKey) *Cached {
	if w, ok := c.entries.Get(name); ok {
		return w
	}
	w := &Cached{}
	if known, there, _ := c.entries.PeekOrAdd(name, w); there {
		return known
	}
	return w
}

// begin reports whether the caller must compute the forecast: it is older than age, and nobody else computes it.
func (w *Cached) begin(age time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy || w.latest != nil && time.Since(w.latest.now) < max(age, costShare*w.took) {
		return false
	}
	w.busy = true
	return true
}

func (f *Forecasts) compute(ctx context.Context, name cacheKey, w *Cached) error {
	began := time.Now()
	o, err := f.computeNow(ctx, name.tenant, name.workflow, began, name.hours)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	if err != nil {
		return err
	}
	w.latest, w.took = o, time.Since(began)
	w.heavy = w.took > f.within
	return nil
}

// Of returns the forecast of a tenant's next day, at most some seconds old. One that takes long to compute is older, and
// empty at first.
func (f *Forecasts) Of(ctx context.Context, tenant tenants.ID) *Cached {
	return f.cachedFor(ctx, cacheKey{tenant: tenant, hours: defaultHours})
}

func (f *Forecasts) cachedFor(ctx context.Context, name cacheKey) *Cached {
	w := f.cache.named(name)
	if !w.begin(maxAge) {
		return w
	}
	w.mu.Lock()
	heavy := w.heavy
	w.mu.Unlock()
	if !heavy {
		short, cancel := context.WithTimeout(ctx, f.within)
		defer cancel()
		err := f.compute(short, name, w)
		if err == nil {
			return w
		}
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			f.log.Warn("a forecast cannot be computed", "tenant", name.tenant, "error", err)
			return w
		}
		w.mu.Lock()
		w.heavy, w.busy = true, true
		w.mu.Unlock()
	}
	select {
	case f.cache.queue <- name:
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

// Ahead returns how many ticks of a tenant's schedules are due ahead, as of some seconds ago; nil until the first forecast is
// computed, which takes some seconds for many timings.
func (f *Forecasts) Ahead(ctx context.Context, tenant tenants.ID) *Ahead {
	w := f.Of(ctx, tenant)
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

// LookAhead computes in the background, until ctx ends, the forecasts for which requests do not wait.
func (f *Forecasts) LookAhead(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-f.cache.queue:
			if err := f.compute(postgres.ForTenant(ctx, int32(name.tenant)), name, f.cache.named(name)); err != nil && ctx.Err() == nil {
				f.log.Warn("a forecast cannot be computed", "tenant", name.tenant, "error", err)
			}
		}
	}
}
