package dispatch_test

import (
	"fmt"
	"testing"
)

// This file models the life of one pushed tick as a state machine: two processes and the rows that they write. At any step a process may
// die, stand still, or lose the answer that it got. The tests search all orders of steps, breadth first.

// phase is how far the delivery of the tick by one process has come.
type phase byte

const (
	idle    phase = iota
	toSend        // it has the tick in memory
	heardOK       // it has sent the tick, and the answer was good
	heardNo
)

// worldProcess is one process. When it dies, the contents of its memory are lost.
type worldProcess struct {
	dead, still    bool // still: silent for so long that the others count it as dead
	phase          phase
	epoch, attempt byte
}

// world is the whole state at a moment. It is comparable, so that the search visits no state twice.
type world struct {
	swept, opened, done bool // states of the chunk
	owner               byte // 0: none; else the number of a process
	epoch               byte
	state               State // of the tick
	attempt             byte
	held                bool
	procs               [2]worldProcess
	delivered           byte // how often an endpoint accepted it
	excuses             byte // how often an acceptance was lost before it was recorded
}

// State is that of the tick in the world.
type State byte

const (
	none State = iota
	running
	ended
	gaveUp
)

// rules are the rules that keep the promises. A test can leave out each of them.
type rules struct{ fence, takeOver, recordAfterSend, attemptChecked bool }

var allRules = rules{true, true, true, true}

const mostTried = 2

// steps returns the worlds that may follow, by the name of the step that leads to each.
func (w world) steps(r rules) map[string]world {
	next := map[string]world{}
	if !w.swept {
		n := w
		n.swept = true // the advance and the chunk are one transaction
		next["sweep"] = n
	}
	for i := range w.procs {
		p, id := w.procs[i], byte(i+1)
		do := func(what string, change func(n *world, p *worldProcess)) {
			n := w
			change(&n, &n.procs[i])
			next[fmt.Sprintf("%s %d", what, id)] = n
		}
		take := func(n *world, p *worldProcess) {
			if other := n.procs[1-i]; other.phase == heardOK && n.state == running && other.epoch == n.epoch {
				n.excuses++ // the other process will not be able to write the answer that it got
			}
			n.owner, n.epoch, n.done = id, n.epoch+1, false
			if n.state == running && !n.held {
				*p = worldProcess{phase: toSend, epoch: n.epoch, attempt: n.attempt}
			} else {
				n.done = true // it finds nothing to send
			}
		}
		lost := func(n *world, p *worldProcess) { // the answer that it got is lost with its memory
			if p.phase == heardOK && n.state == running && p.epoch == n.epoch {
				n.excuses++
			}
		}
		if p.dead {
			do("restart", func(n *world, p *worldProcess) { *p = worldProcess{} })
			continue
		}
		if w.procs[0].alive() && w.procs[1].alive() { // one at a time is enough
			do("crash", func(n *world, p *worldProcess) { lost(n, p); *p = worldProcess{dead: true} })
			do("stand still", func(n *world, p *worldProcess) { p.still = true })
		}
		if p.phase == heardOK || p.phase == heardNo {
			write := func(n *world, p *worldProcess) {
				mine := !r.fence || n.owner == id && n.epoch == p.epoch
				this := n.state == running && (!r.attemptChecked || n.attempt == p.attempt && !n.held)
				switch {
				case !mine || !this:
					lost(n, p)
				case p.phase == heardOK:
					n.state, n.done = ended, true
				case n.attempt < mostTried:
					n.attempt, n.held, n.done = n.attempt+1, true, true
				default:
					n.state, n.done = gaveUp, true
				}
			}
			do("write", func(n *world, p *worldProcess) { write(n, p); p.phase = idle })
			do("write unheard", write) // the answer to the commit is lost, so the process writes it again
		}
		if p.still {
			do("go on", func(n *world, p *worldProcess) { // it drops what it held
				lost(n, p)
				*p = worldProcess{}
				if n.owner == id && !n.done {
					n.owner = 3 // it registers under a new number, and the old one is dead
				}
			})
			continue
		}
		if w.swept && !w.opened {
			do("open", func(n *world, p *worldProcess) {
				n.opened, n.state, n.attempt = true, running, 1
				take(n, p)
				if !r.recordAfterSend {
					n.state = ended
				}
			})
		}
		if w.held {
			do("retry", func(n *world, p *worldProcess) { n.held = false; take(n, p) })
		}
		if p.phase == toSend {
			do("send and hear yes", func(n *world, p *worldProcess) { n.delivered++; p.phase = heardOK })
			do("send and hear no", func(_ *world, p *worldProcess) { p.phase = heardNo })
			do("send and hear nothing", func(n *world, p *worldProcess) { n.delivered++; n.excuses++; p.phase = heardNo })
		}
		owned := w.owner == 1 || w.owner == 2
		if w.opened && !w.done && r.takeOver && p.phase == idle && (!owned || w.owner == id || !w.procs[w.owner-1].alive()) {
			do("take over", take)
		}
	}
	return next
}

func (p worldProcess) alive() bool { return !p.dead && !p.still }

// wrong returns the promise that the step from before to w breaks; "" if it breaks none.
func (w world) wrong(before world) string {
	switch {
	case w.state == ended && w.delivered == 0:
		return "it succeeded, and nobody took it"
	case w.delivered > 1+w.excuses:
		return "it was taken twice, and no acknowledgement was lost"
	case before.state > running && w.state != before.state:
		return "it ended twice"
	case before.swept && !w.swept, before.opened && !w.opened:
		return "what was committed is gone"
	case w.held && w.state > running:
		return "it has ended and is held"
	}
	return ""
}

// ends reports whether the tick ends if no more faults happen: both processes live, and take one step after another.
func (w world) ends(r rules) bool {
	for range 40 {
		if w.state > running && w.done {
			return true
		}
		next := w.steps(r)
		moved := false
		for _, what := range []string{"restart", "go on", "write", "sweep", "open", "retry", "send and hear yes", "take over"} {
			for _, who := range []string{"", " 1", " 2"} {
				if n, ok := next[what+who]; ok && !moved {
					w, moved = n, true
				}
			}
		}
		if !moved {
			return false
		}
	}
	return false
}

// explore visits all worlds that at most depth steps reach, and returns the first path to a world that breaks a promise.
func explore(r rules, depth int) (seen int, way []string) {
	type arrival struct {
		from world
		what string
	}
	came := map[world]arrival{{}: {}}
	path := func(w world) (steps []string) {
		for w != (world{}) {
			a := came[w]
			steps, w = append([]string{a.what}, steps...), a.from
		}
		return steps
	}
	edge := []world{{}}
	for range depth {
		var further []world
		for _, w := range edge {
			for what, n := range w.steps(r) {
				if n.delivered > 3 || n.excuses > 3 || n.epoch > 6 {
					continue
				}
				if why := n.wrong(w); why != "" {
					return len(came), append(path(w), what, why)
				}
				if _, known := came[n]; known {
					continue
				}
				came[n] = arrival{w, what}
				if !n.ends(r) {
					return len(came), append(path(n), "it never ends")
				}
				further = append(further, n)
			}
		}
		edge = further
	}
	return len(came), nil
}

// Whatever is lost at any step, the tick ends exactly once. It is sent again only if no process can know that it was accepted.
func TestALifeKeepsItsPromisesInAnyOrder(t *testing.T) {
	t.Parallel()
	seen, way := explore(allRules, 20)
	if way != nil {
		t.Errorf("this breaks a promise: %q", way)
	}
	if seen < 1000 {
		t.Errorf("%d worlds are few", seen)
	}
	t.Logf("%d worlds", seen)
}

// Each rule is needed: without it there is a way to break a promise.
func TestEachRuleOfALifeIsNeeded(t *testing.T) {
	t.Parallel()
	for what, r := range map[string]rules{
		"fence":    {takeOver: true, recordAfterSend: true, attemptChecked: false},
		"takeOver": {fence: true, recordAfterSend: true, attemptChecked: true},
		"record":   {fence: true, takeOver: true, attemptChecked: true},
	} {
		if seen, way := explore(r, 14); way == nil {
			t.Errorf("%s: nothing was found in %d worlds", what, seen)
		} else {
			t.Logf("%s: %q", what, way)
		}
	}
}
