package tail

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

const (
	mostKeys = 50 // ticks in one note: its text must have fewer than 8,000 bytes
	// MostSchedules is how many schedules a filter names at most: its text must have fewer than 8,000 bytes.
	MostSchedules = 300
)

// Filter picks ticks by what each process knows of them. Its zero value picks all. Of the times, From is the first nominal time and To
// the first one after them, in microseconds since 1970; 0 is no limit.
type Filter struct {
	Workflow    string       `json:"w,omitempty"`
	State       record.State `json:"e,omitempty"` // with which the tick fired or ended; 0: any
	OfSchedules bool         `json:"o,omitempty"` // only ticks of Schedules
	Schedules   []int64      `json:"s,omitempty"`
	From        int64        `json:"f,omitempty"`
	To          int64        `json:"u,omitempty"`
}

// id returns a number that names the filter.
func (f *Filter) id() uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(f) // neither fails
	return h.Sum64()
}

// all reports whether the filter picks all ticks.
func (f *Filter) all() bool {
	return f.Workflow == "" && f.State == 0 && !f.OfSchedules && f.From == 0 && f.To == 0
}

func (f *Filter) picks(e *Entry) bool {
	switch {
	case f.State != 0 && e.State != f.State, f.Workflow != "" && e.workflow != f.Workflow:
		return false
	case f.OfSchedules && !slices.Contains(f.Schedules, e.Schedule):
		return false
	}
	return e.At >= f.From && (f.To == 0 || e.At < f.To)
}

// Note is what fired and ended of a tenant in a moment, as far as a filter picks it. Entries are some of these ticks.
type Note struct {
	Tenant  tenants.ID `json:"t"`
	Filter  uint64     `json:"i"`
	Fired   int        `json:"f"`
	Ended   int        `json:"n"`
	Entries []Entry    `json:"k"`
}

// merge adds what another note has. It keeps mostKeys entries.
func (n *Note) merge(other Note) {
	n.Fired, n.Ended = n.Fired+other.Fired, n.Ended+other.Ended
	n.Entries = append(n.Entries, other.Entries[:min(len(other.Entries), mostKeys-len(n.Entries))]...)
}

// moment is what one process fired and ended of a tenant since its last notes. Ticks are the first of them.
type moment struct {
	tenant       tenants.ID
	fired, ended int
	ticks        []Entry
	filters      []Filter
}

// notes returns a note for each filter that picks something.
func (m *moment) notes(ctx context.Context, db postgres.DB) (all []Note, err error) {
	if slices.ContainsFunc(m.filters, func(f Filter) bool { return f.Workflow != "" }) {
		if err := m.nameWorkflows(ctx, db); err != nil {
			return nil, err
		}
	}
	for i := range m.filters {
		f := &m.filters[i]
		n := Note{Tenant: m.tenant, Filter: f.id()}
		for j := range m.ticks {
			e := &m.ticks[j]
			if !f.picks(e) {
				continue
			}
			if e.Ended() {
				n.Ended++
			} else {
				n.Fired++
			}
			if len(n.Entries) < mostKeys {
				n.Entries = append(n.Entries, *e)
			}
		}
		if f.all() {
			n.Fired, n.Ended = m.fired, m.ended
		}
		if n.Fired+n.Ended > 0 {
			all = append(all, n)
		}
	}
	return all, nil
}

// nameWorkflows looks up the workflows of those ticks of which the process did not know them.
func (m *moment) nameWorkflows(ctx context.Context, db postgres.DB) error {
	names := map[int64]string{}
	for _, e := range m.ticks {
		if e.workflow != "" {
			names[e.Schedule] = e.workflow
		}
	}
	var ids []int64
	for _, e := range m.ticks {
		if _, known := names[e.Schedule]; !known {
			names[e.Schedule] = ""
			ids = append(ids, e.Schedule)
		}
	}
	found, err := record.SchedulesOf(ctx, db, m.tenant, ids)
	if err != nil {
		return err
	}
	for i := range m.ticks {
		e := &m.ticks[i]
		if e.workflow = names[e.Schedule]; e.workflow == "" {
			e.workflow = found[e.Schedule].Workflow
		}
	}
	return nil
}

// micros returns a moment as a filter has it.
func micros(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

// Between returns the filter with limits of nominal times; a zero time is none.
func (f Filter) Between(from, to time.Time) Filter {
	f.From, f.To = micros(from), micros(to)
	return f
}
