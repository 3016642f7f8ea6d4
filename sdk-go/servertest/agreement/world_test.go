package agreement

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres/postgrestest"
	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// world is the real server and the one in memory, with the same clock. Each operation is done on both.
type world struct {
	script
	*dispatchtest.Carillon
	clock  *postgrestest.Clock
	fake   *carillontest.Server
	client *carillon.Client
	at     int // the present step
	found  []difference
	log    []string // of the only schedule
	ticks  int      // that were compared
}

// newWorld returns both servers at the beginning of a script.
func newWorld(t *testing.T, c script) *world {
	clock := postgrestest.StoppedClock(t, c.from)
	w := &world{script: c, Carillon: dispatchtest.NewOn(t, clock.Pool), clock: clock, fake: carillontest.Start(t)}
	w.Config.Pause = w.Schedules.PauseFailing
	w.Dispatch = w.Process()
	w.Quota("acme", 10_000_000) // tokens come with the clock, which stands still
	w.fake.AdvanceTo(c.from)
	w.client = w.fake.Client()
	return w
}

// live runs the script on both servers. A schedule that differs takes no further part.
func (w *world) live() {
	w.calendar("holidays", []string{w.change.Format(time.DateOnly)})
	left := w.each(w.stories, func(s *story) (bool, string) {
		if s.profile != nil {
			if d := w.subject(s.subject(), *s.profile); d != "" {
				return false, d
			}
		}
		d := w.put(s.name, s.params)
		_, err := w.client.Schedules.Get(w.T.Context(), s.workflow, s.key)
		return err == nil, d // both may refuse it
	})
	w.settle()
	for i, step := range w.steps {
		if len(left) == 0 {
			return
		}
		w.at = i
		w.pass(step.to)
		for round := 0; ; round++ {
			acted := false
			left = w.each(left, func(s *story) (bool, string) {
				var due []operation
				for _, o := range s.then {
					if o.step == i {
						due = append(due, o)
					}
				}
				if round >= len(due) {
					return true, ""
				}
				acted = true
				return true, due[round].do(w, s)
			})
			if !acted {
				break
			}
			w.settle()
		}
		for _, workflow := range step.finishes {
			w.finish(workflow)
		}
		left = w.each(left, func(s *story) (bool, string) {
			if len(w.stories) > 1 && i < len(w.steps)-1 && (s.number+i)%8 > 0 {
				return true, "" // most differences are still there later
			}
			return true, w.compare(s.name)
		})
	}
	for _, s := range left {
		for _, err := range w.client.Schedules.Ticks(w.T.Context(), s.workflow, s.key, carillon.TickFilter{PageSize: 1000}) {
			if err == nil {
				w.ticks++
			}
		}
	}
}

// each calls run with each story, and returns the stories that run keeps and in which both servers agree.
func (w *world) each(all []story, run func(*story) (keep bool, differs string)) (left []story) {
	for _, s := range all {
		keep, differs := run(&s)
		if differs != "" {
			at := w.clock.Now.Format(time.RFC3339Nano)
			w.found = append(w.found, difference{s, w.at, fmt.Sprintf("%s at %s %s", s.name, at, differs), w.log})
		} else if keep {
			left = append(left, s)
		}
	}
	return left
}

// note keeps what happens, if there is only one schedule.
func (w *world) note(format string, args ...any) {
	if len(w.stories) == 1 {
		w.log = append(w.log, w.clock.Now.Format("Jan 2 15:04:05 ")+fmt.Sprintf(format, args...))
	}
}

// body returns a value as JSON, read as the type of the other side.
func body[T any](w *world, from any) (to T) {
	if err := json.Unmarshal([]byte(text(from)), &to); err != nil {
		w.T.Fatalf("%T of %s: %v", to, text(from), err)
	}
	return to
}

// same returns how the outcome of an operation differs between both servers.
func (w *world) same(what string, real, fake error) string {
	ours, theirs := "", carillon.Code("")
	if f, ok := errors.AsType[*fault.Error](real); ok {
		ours = f.Code
	} else if real != nil {
		w.T.Fatalf("%s: %v", what, real)
	}
	if e, ok := errors.AsType[*carillon.Error](fake); ok {
		theirs = e.Code
	} else if fake != nil {
		w.T.Fatalf("%s: %v", what, fake)
	}
	w.note("%s: %s", what, ours)
	if ours != string(theirs) {
		return fmt.Sprintf("%s: the server says %v, carillontest %v", what, real, fake)
	}
	return ""
}

// settle runs what an operation made due on the real server.
func (w *world) settle() {
	w.Dispatch.Finisher.PauseQueued(w.T.Context())
	w.OpenChunks(w.T)
	w.SweepAll(w.T)
}

// pass lets time pass.
func (w *world) pass(to time.Time) {
	if w.away {
		w.move(to)
		w.fake.Outage(to.Format(time.RFC3339Nano))
		return
	}
	for {
		var due *time.Time
		err := w.Pool.QueryRow(w.T.Context(), `
			SELECT min(due_at) FROM (
				SELECT due_at FROM cohort UNION ALL SELECT due_at FROM delayed UNION ALL SELECT due_at FROM fair_turn
			) all_due WHERE due_at <= $1`, to).Scan(&due)
		if err != nil {
			w.T.Fatal(err)
		}
		if due == nil {
			break
		}
		w.move(*due)
	}
	w.move(to)
	w.fake.AdvanceTo(to)
}

func (w *world) move(to time.Time) {
	w.clock.Move(w.T, to.Sub(w.clock.Now))
	w.SweepAll(w.T)
}

// fails reports whether the tick of a key at a time fails for good.
func fails(key string, at time.Time) bool { return (at.Unix()/60+int64(len(key)))%5 == 0 }

// rounds sorts leased ticks by their times, and then into rounds that have one tick of each schedule. Both servers end them round by
// round, so that both see the ticks of a schedule end in the same order.
func rounds[T any](ticks []T, key func(T) string, at func(T) time.Time) (all [][]T) {
	slices.SortStableFunc(ticks, func(a, b T) int {
		if byKey := strings.Compare(key(a), key(b)); byKey != 0 {
			return byKey
		}
		return at(a).Compare(at(b))
	})
	round := 0
	for i, t := range ticks {
		if round++; i == 0 || key(ticks[i-1]) != key(t) {
			round = 0
		}
		if round == len(all) {
			all = append(all, nil)
		}
		all[round] = append(all[round], t)
	}
	return all
}
