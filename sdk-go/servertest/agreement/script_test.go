package agreement

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

// script is all that happens in one world: some schedules live through a change of the clock. It follows from a seed and a number of
// schedules. A schedule has its own random numbers and its own subject, so that it can be repeated without the others.
type script struct {
	away    bool // nothing fires while the clock moves; both servers catch up afterwards
	from    time.Time
	change  time.Time
	zone    string
	steps   []step
	stories []story
}

// step is a move of the clock, and then the workflows whose ready ticks end.
type step struct {
	to       time.Time
	finishes []string
}

// story is what happens to one schedule.
type story struct {
	name
	number  int
	profile *carillon.SubjectParams
	params  carillon.Params
	then    []operation // in the order of their steps
}

// operation is a change of a schedule after a step.
type operation struct {
	step int
	do   func(w *world, s *story) (difference string)
}

var workflows = []string{"a", "b", "c", "d"}

func rolled(seed, part uint64) dice { return dice{rand.New(rand.NewPCG(seed, part))} }

func newScript(seed uint64, schedules int) script {
	d := rolled(seed, 0)
	c := script{away: !d.oneIn(4)}
	c.change, c.zone = drawWeekend(d)
	// The clock stands half a second after a whole second, so no nominal time is equal to it.
	c.from = c.change.Add(-time.Duration(d.between(4, 40))*time.Hour + 5e8).Truncate(time.Second / 2)
	for now := c.from; now.Before(c.change.Add(26 * time.Hour)); {
		now = now.Add(pick(d, d.minutes(1, 20), d.minutes(60, 400), pick[time.Duration](d, 15, 30, 60)*time.Minute))
		next := step{to: now}
		for _, workflow := range workflows {
			if d.oneIn(2) {
				next.finishes = append(next.finishes, workflow)
			}
		}
		c.steps = append(c.steps, next)
	}
	for i := range schedules {
		c.stories = append(c.stories, c.story(rolled(seed, uint64(i+1)), i))
	}
	return c
}

func (c *script) story(d dice, number int) story {
	s := story{name: name{pick(d, workflows...), fmt.Sprintf("k%d", number)}, number: number}
	if d.oneIn(4) {
		s.key += "/2"
	}
	if d.oneIn(3) {
		s.profile = new(drawProfile(d, c.zone))
	}
	s.params = carillon.Params{Spec: drawSpec(d, c.from, c.change, c.zone), Policy: drawPolicy(d), Delivery: carillon.Delivery{MaxAttempts: 1}}
	if d.oneIn(2) {
		s.params.Subject = fmt.Sprintf("s%d", number)
	}
	for i, after := range c.steps {
		for d.oneIn(4) {
			s.then = append(s.then, operation{i, c.draw(d, after.to)})
		}
	}
	return s
}

// subject returns the subject of the schedule.
func (s *story) subject() string {
	if s.params.Subject != "" {
		return s.params.Subject
	}
	return s.key
}

// draw draws a change of one schedule.
func (c *script) draw(d dice, now time.Time) func(*world, *story) string {
	switch d.IntN(10) {
	case 0:
		return func(w *world, s *story) string { return w.pause(s.name, nil) }
	case 1:
		until := now.Truncate(time.Second).Add(d.minutes(1, 600))
		return func(w *world, s *story) string { return w.pause(s.name, &until) }
	case 2, 3:
		once := d.oneIn(2)
		return func(w *world, s *story) string { return w.resume(s.name, once) }
	case 4:
		count := d.between(1, 3)
		return func(w *world, s *story) string { return w.skip(s.name, count) }
	case 5:
		return func(w *world, s *story) string { return w.unskip(s.name) }
	case 6:
		by := d.minutes(-20, 40)
		return func(w *world, s *story) string { return w.reschedule(s.name, by) }
	case 7:
		in := pick(d, "", "", "20m", "3h")
		if c.away {
			in = "" // an outage leaves open whether a later manual tick comes before one of the spec
		}
		return func(w *world, s *story) string { return w.trigger(s.name, in) }
	case 8:
		profile := drawProfile(d, c.zone)
		return func(w *world, s *story) string { return w.subject(s.subject(), profile) }
	}
	p := carillon.Params{Policy: drawPolicy(d), Delivery: carillon.Delivery{MaxAttempts: 1}}
	respecify := d.oneIn(2)
	if respecify {
		p.Spec = drawSpec(d, now, c.change, c.zone)
	}
	return func(w *world, s *story) string {
		p := p
		if p.Subject = s.params.Subject; !respecify {
			p.Spec = w.spec(s)
		}
		return w.put(s.name, p)
	}
}

// alone returns the script with one of its schedules.
func (c script) alone(s story) script {
	c.stories = []story{s}
	return c
}

// simpler returns the script of one schedule without one of its operations, and then with a simpler policy or profile.
func (c script) simpler() (all []script) {
	s := c.stories[0]
	for i := range s.then {
		shorter := s
		shorter.then = slices.Delete(slices.Clone(s.then), i, i+1)
		all = append(all, c.alone(shorter))
	}
	for _, simplify := range []func(*story){
		func(s *story) { s.profile = nil },
		func(s *story) { s.params.Policy = carillon.Policy{} },
		func(s *story) { s.params.Policy.MaxLateness, s.params.Policy.OnExpired = "", "" },
		func(s *story) { s.params.Policy.PauseAfterFailures = nil },
		func(s *story) { s.params.Spec.Exclude = nil },
		func(s *story) { s.params.Spec.DST = carillon.DST{} },
		func(s *story) { s.params.Spec.StartAt, s.params.Spec.EndAt = "", "" },
		func(s *story) { s.params.Spec.MaxTicks = 0 },
		func(s *story) { s.params.Spec.Jitter = "" },
	} {
		simple := s
		simplify(&simple)
		if text(simple.profile) != text(s.profile) || text(simple.params) != text(s.params) {
			all = append(all, c.alone(simple))
		}
	}
	return all
}

// text returns a value as JSON.
func text(v any) string {
	content, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(content)
}
