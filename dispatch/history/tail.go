package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/dispatch/tail"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// TailTick is a line of the live tail: a tick that fired or ended.
type TailTick struct {
	Kind       string    `json:"kind"` // fired or ended
	TickID     string    `json:"tick_id"`
	Workflow   string    `json:"workflow"`
	Key        string    `json:"key"`
	Subject    string    `json:"subject"`
	Timestamp  time.Time `json:"timestamp"`
	LocalTime  string    `json:"local_time"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	LatenessMS int64     `json:"lateness_ms"`
	TookMS     *int64    `json:"took_ms,omitempty"` // from being handed out to the end

	at time.Time // when it fired or ended
}

// TailSecond counts the ticks of about a second. Unshown are those without a line.
type TailSecond struct {
	Fired   int `json:"fired"`
	Ended   int `json:"ended"`
	Unshown int `json:"unshown"`
}

// TailGap says between which moments ticks were not shown: the client was away for longer than the tail reaches back, or missed too many.
type TailGap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

const (
	tailReach    = 10 * time.Minute // back, for a client that comes again
	mostLines    = 50               // a second
	mostResumed  = 200              // lines for a client that comes again
	awaitCommits = 4                // seconds until a tick must be visible as a note says: a note may come before the commit
)

// follower is one client of the tail.
type follower struct {
	reader *Reader
	tenant tenants.ID
	want   picked
	filter Filter
	exact  bool // what processes know of ticks decides what the filter picks

	second  TailSecond
	lines   int // of the second
	again   []awaited
	resumed map[string]bool // lines that the client got of the time before it came
}

// awaited is a tick that a note named before its row was visible in the state of the note.
type awaited struct {
	tail.Entry
	seconds int // for so long
}

// follow prepares a tail of the ticks that a filter picks.
func (r *Reader) follow(ctx context.Context, tenant tenants.ID, f Filter) (*follower, error) {
	one := &follower{reader: r, tenant: tenant, filter: f, exact: f.Cause == "" && f.Subject == "" && f.Operation == "", resumed: map[string]bool{}}
	return one, one.refresh(ctx)
}

// refresh reads which schedules the filter names: one may have been made since the last call.
func (f *follower) refresh(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	f.want, err = f.reader.pick(ctx, f.tenant, f.filter)
	return err
}

// picks returns the filter by what processes know of ticks.
func (f *follower) picks() tail.Filter {
	p := tail.Filter{Workflow: f.filter.Workflow, OfSchedules: f.want.ofSchedules, Schedules: f.want.schedules[:min(len(f.want.schedules), tail.MostSchedules)]}
	if f.want.state > 0 {
		p.State = record.State(f.want.state)
	}
	return p.Between(f.filter.From, f.filter.To)
}

// take returns the lines of the ticks of a note, and of earlier ones that were not visible yet.
func (f *follower) take(ctx context.Context, n tail.Note) ([]TailTick, error) {
	if f.exact {
		f.second.Fired, f.second.Ended = f.second.Fired+n.Fired, f.second.Ended+n.Ended
		f.second.Unshown += n.Fired + n.Ended - len(n.Entries)
	}
	all := f.again
	for _, e := range n.Entries {
		all = append(all, awaited{Entry: e})
	}
	f.again = nil
	if room := mostLines - f.lines; f.exact && len(all) > room { // otherwise the others are read, to count them
		f.second.Unshown += len(all) - room
		all = all[:room]
	}
	if len(all) == 0 {
		return nil, nil
	}
	found, err := f.read(ctx, all)
	if err != nil {
		return nil, err
	}
	var lines []TailTick
	for _, e := range all {
		lines = f.add(lines, e, found[e.Key()])
	}
	return lines, nil
}

// add adds the line of a tick that a note named, as its row is now: t is nil if it is not visible. A line whose row is not yet as the note
// says waits for the next call.
func (f *follower) add(lines []TailTick, e awaited, t *tailed) []TailTick {
	switch {
	case t == nil || t.State == record.Scheduled.String() || e.Ended() && t.EndedAt == nil: // the note came before the commit
		if e.seconds < awaitCommits {
			f.again = append(f.again, e)
		} else if f.exact {
			f.second.Unshown++
		}
		return lines
	case !t.picked:
		return lines
	}
	line := tailLine(&t.Tick, e.Ended())
	if f.resumed[line.name()] {
		return lines
	}
	switch {
	case f.exact:
	case e.Ended():
		f.second.Ended++
	default:
		f.second.Fired++
	}
	if f.lines == mostLines {
		f.second.Unshown++
		return lines
	}
	f.lines++
	return append(lines, line)
}

// tailed is a tick that a note named, and whether the filter picks it.
type tailed struct {
	Tick
	picked bool
}

// read reads ticks with their local times, as far as they are visible.
func (f *follower) read(ctx context.Context, all []awaited) (map[ident.TickKey]*tailed, error) {
	ctx, cancel := context.WithTimeout(ctx, postgres.QueryTimeout)
	defer cancel()
	found := make(map[ident.TickKey]*tailed, len(all))
	var keys []ident.TickKey
	for _, e := range all {
		if k := e.Key(); found[k] == nil {
			found[k] = &tailed{}
			keys = append(keys, k)
		}
	}
	ticks, _, err := f.reader.ticksOf(ctx, f.tenant, keys)
	if err != nil {
		return nil, err
	}
	clear(found)
	var ids []int64
	for _, t := range ticks {
		ids = append(ids, t.ScheduleID)
	}
	named, err := record.SchedulesOf(ctx, f.reader.api, f.tenant, ids)
	if err != nil {
		return nil, err
	}
	at, err := record.SchedulesAt(ctx, f.reader.api, f.tenant, ticks, named)
	if err != nil {
		return nil, err
	}
	want := f.want
	want.state = -1 // that of the line counts
	var shown []*Tick
	for i, t := range ticks {
		one := &tailed{Tick: f.reader.Shown(t, at[i]), picked: want.has(t, at[i])}
		found[t.RowKey()] = one
		shown = append(shown, &one.Tick)
	}
	if err := f.reader.Localize(ctx, f.reader.api, f.tenant, shown...); err != nil {
		return nil, fmt.Errorf("read local times: %w", err)
	}
	return found, nil
}

// tailLine returns the line of a tick.
func tailLine(t *Tick, ended bool) TailTick {
	l := TailTick{
		Kind: "fired", TickID: t.TickID, Workflow: t.Workflow, Key: t.Key, Subject: t.Subject, Timestamp: t.Timestamp, LocalTime: t.LocalTime,
		State: record.Running.String(), LatenessMS: t.Late().Milliseconds(), at: t.Fired(),
	}
	if ended {
		l.Kind, l.State, l.Reason, l.at = "ended", t.State, t.Reason, *t.EndedAt
		l.TookMS = new(max(0, t.EndedAt.Sub(t.Fired()).Milliseconds()))
	}
	return l
}

// name names the line among those of a client.
func (l *TailTick) name() string { return l.Kind + l.TickID + l.at.String() }

// endSecond returns the counts of the second, and begins another one.
func (f *follower) endSecond() (s TailSecond) {
	s = f.second
	f.second, f.lines = TailSecond{}, 0
	for i := range f.again {
		f.again[i].seconds++
	}
	return s
}

// handedOut are the states of ticks that fired for certain.
var handedOut = []string{record.Running.String(), record.Succeeded.String(), record.Failed.String()}

// since returns the lines of ticks that fired or ended after a moment, the oldest first. It returns at most mostResumed
// lines, the newest. from is after, or the time of the first line if older lines are left out.
func (f *follower) since(ctx context.Context, after time.Time) (lines []TailTick, from time.Time, err error) {
	filter := f.filter
	filter.State = ""
	if old := after.Add(-tailReach); filter.From.Before(old) {
		filter.From = old
	}
	page, next, err := f.reader.Ticks(ctx, f.tenant, filter, mostResumed, "")
	if err != nil {
		return nil, after, err
	}
	add := func(line TailTick) {
		if line.at.After(after) && (f.filter.State == "" || f.filter.State == line.State) {
			lines = append(lines, line)
		}
	}
	for i := range page {
		t := &page[i]
		if slices.Contains(handedOut, t.State) {
			add(tailLine(t, false))
		}
		if t.EndedAt != nil {
			add(tailLine(t, true))
		}
	}
	slices.SortStableFunc(lines, func(a, b TailTick) int { return a.at.Compare(b.at) })
	if len(lines) > mostResumed || next != nil && len(page) == mostResumed && page[len(page)-1].Timestamp.After(after) {
		lines = lines[max(0, len(lines)-mostResumed):]
		if len(lines) > 0 {
			after = lines[0].at
		}
	}
	for i := range lines {
		f.resumed[lines[i].name()] = true
	}
	return lines, after, nil
}
