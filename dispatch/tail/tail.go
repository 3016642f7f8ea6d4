package tail

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	// WatchChannel is the notification channel for what clients follow. All processes listen to it.
	WatchChannel = "carillon_watch"
	noteChannel  = "carillon_tail"

	announceEvery = 4 * time.Second
	watchedFor    = 12 * time.Second // after an announcement
	noteEvery     = 200 * time.Millisecond
	mostNoted     = 4000 // ticks of a tenant that filters look at between two notes; further ticks are only counted
	mostFilters   = 100  // of one tenant
)

// Entry is a tick that fired, with the state Running, or that ended with a later state.
type Entry struct {
	State    record.State `json:"e"`
	Schedule int64        `json:"s"`
	At       int64        `json:"a"` // its nominal time, in microseconds since 1970
	Seq      int32        `json:"q,omitempty"`

	workflow string // empty: not known here
}

// Key returns the key of the tick.
func (e Entry) Key() ident.TickKey {
	return ident.TickKey{Schedule: e.Schedule, At: time.UnixMicro(e.At).UTC(), Seq: e.Seq}
}

// Ended reports whether the tick ended.
func (e Entry) Ended() bool { return e.State != record.Running }

// announcement is a note of WatchChannel: a client follows the ticks of a tenant that a filter picks.
type announcement struct {
	Tenant tenants.ID `json:"t"`
	Filter Filter     `json:"f"`
}

// watch is a tenant that somebody follows, with its ticks since the last notes.
type watch struct {
	filters      map[uint64]*watched
	fired, ended int
	ticks        []Entry
}

// watched is a filter of clients, and until when they follow.
type watched struct {
	Filter
	until time.Time
}

// Tail is the part of one process. It is safe for concurrent use.
type Tail struct {
	pool *pgxpool.Pool
	log  *slog.Logger

	watched atomic.Bool // some tenant is
	mu      sync.Mutex
	watches map[tenants.ID]*watch
	stirred chan struct{}
	hub     hub
}

// New returns a Tail that nobody follows.
func New(pool *pgxpool.Pool, log *slog.Logger) *Tail {
	return &Tail{pool: pool, log: log, watches: map[tenants.ID]*watch{}, stirred: make(chan struct{}, 1), hub: hub{clients: map[*Client]bool{}}}
}

// Watch takes a notification of WatchChannel.
func (t *Tail) Watch(payload string) {
	var a announcement
	if json.Unmarshal([]byte(payload), &a) == nil {
		t.watch(a)
	}
}

// Watched returns how many filters of a tenant's clients this process knows. It serves tests.
func (t *Tail) Watched(tenant tenants.ID) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.watches[tenant]; w != nil {
		return len(w.filters)
	}
	return 0
}

// watch notes that somebody follows.
func (t *Tail) watch(a announcement) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.watches[a.Tenant]
	if w == nil {
		w = &watch{filters: map[uint64]*watched{}}
		t.watches[a.Tenant] = w
	}
	id := a.Filter.id()
	if w.filters[id] == nil {
		if len(w.filters) >= mostFilters {
			return
		}
		w.filters[id] = &watched{Filter: a.Filter}
	}
	w.filters[id].until = time.Now().Add(watchedFor)
	t.watched.Store(true)
	select {
	case t.stirred <- struct{}{}:
	default:
	}
}

// Fired notes ticks that are recorded: those that are handed out, and those that ended at once.
func (t *Tail) Fired(tenant tenants.ID, ticks []record.Tick) {
	if !t.watched.Load() {
		return
	}
	t.note(tenant, func(w *watch) {
		for i := range ticks {
			if one := &ticks[i]; one.State != record.Scheduled {
				w.add(one.RowKey(), one.State, one.Workflow)
			}
		}
	})
}

// Released notes a tick that was recorded before, and is handed out now.
func (t *Tail) Released(tenant tenants.ID, k ident.TickKey) {
	if t.watched.Load() {
		t.note(tenant, func(w *watch) { w.add(k, record.Running, "") })
	}
}

// Ended notes those of some ticks that have ended, by their new states.
func (t *Tail) Ended(tenant tenants.ID, ticks map[ident.TickKey]record.State) {
	if !t.watched.Load() {
		return
	}
	t.note(tenant, func(w *watch) {
		for k, state := range ticks {
			if state >= record.Succeeded {
				w.add(k, state, "")
			}
		}
	})
}

// EndedOne notes a tick that ended.
func (t *Tail) EndedOne(tenant tenants.ID, k ident.TickKey, state record.State) {
	if t.watched.Load() {
		t.note(tenant, func(w *watch) { w.add(k, state, "") })
	}
}

// note adds ticks of a tenant, if somebody follows it.
func (t *Tail) note(tenant tenants.ID, add func(*watch)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w := t.watches[tenant]; w != nil {
		add(w)
	}
}

func (w *watch) add(k ident.TickKey, state record.State, workflow string) {
	if state == record.Running {
		w.fired++
	} else {
		w.ended++
	}
	if len(w.ticks) < mostNoted {
		w.ticks = append(w.ticks, Entry{state, k.Schedule, k.At.UnixMicro(), k.Seq, workflow})
	}
}

// Run sends the notes of this process until ctx ends. It sleeps while no tenant is followed.
func (t *Tail) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.stirred:
		}
		t.sendWhileWatched(ctx)
	}
}

// sendWhileWatched sends notes until no tenant is followed any more.
func (t *Tail) sendWhileWatched(ctx context.Context) {
	ticker := time.NewTicker(noteEvery)
	defer ticker.Stop()
	for t.watched.Load() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := t.send(ctx, t.take(time.Now())); err != nil && ctx.Err() == nil {
			t.log.Warn("cannot notify the clients that follow ticks", "error", err)
		}
	}
}

// send sends the notes of a moment.
func (t *Tail) send(ctx context.Context, all []moment) error {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	var channels, payloads []string
	for i := range all {
		notes, err := all[i].notes(ctx, t.pool)
		if err != nil {
			return err
		}
		for _, n := range notes {
			text, err := json.Marshal(n)
			if err != nil {
				return err
			}
			channels, payloads = append(channels, noteChannel), append(payloads, string(text))
		}
	}
	if len(payloads) == 0 {
		return nil
	}
	_, err := t.pool.Exec(ctx, postgres.NotifyAll, channels, payloads)
	return err
}

// take returns the ticks since the last call, and forgets filters that nobody follows any more.
func (t *Tail) take(now time.Time) (all []moment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for tenant, w := range t.watches {
		m := moment{tenant: tenant, fired: w.fired, ended: w.ended, ticks: w.ticks}
		w.fired, w.ended, w.ticks = 0, 0, nil
		for id, one := range w.filters {
			if now.After(one.until) {
				delete(w.filters, id)
				continue
			}
			m.filters = append(m.filters, one.Filter)
		}
		if m.fired+m.ended > 0 {
			all = append(all, m)
		}
		if len(w.filters) == 0 {
			delete(t.watches, tenant)
		}
	}
	t.watched.Store(len(t.watches) > 0)
	return all
}
