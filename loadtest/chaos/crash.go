package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// crashes hands out the crash points in turn.
type crashes struct {
	mu      sync.Mutex
	next    int
	reached map[string]int
}

// crashAtAPoint restarts a process with a crash point armed, and waits some seconds until it is reached.
func crashAtAPoint(ctx context.Context, f *faulty) (on string, err error) {
	point := f.crash.take()
	n := f.node(point.role)
	defer n.fault.Unlock()
	n.kill()
	passes, wait := 1+f.rand.IntN(6), 8*time.Second
	if point.orphans {
		passes, wait = 1, deadAfter+8*time.Second
		if other := f.other(n); other.fault.TryLock() {
			defer other.fault.Unlock()
			other.kill()
			defer func() { err = errors.Join(err, other.revive(ctx, "")) }()
		}
	}
	if err := n.start(fmt.Sprintf("%s:%d", point.name, passes)); err != nil {
		return point.name, err
	}
	select {
	case <-n.ended():
		f.crash.mark(point.name)
	case <-time.After(wait):
		n.kill()
	case <-ctx.Done():
		n.kill()
	}
	return point.name + " of " + n.name, n.revive(ctx, "")
}

func (c *crashes) take() crashPoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	return crashPoints[c.next%len(crashPoints)]
}

func (c *crashes) mark(point string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached[point]++
}

// crashPoint is a place that the code names, and the role of the processes that pass it.
type crashPoint struct {
	name, role string
	orphans    bool // only a process that takes over a dead one's work passes it
}

// deadAfter is the time after which other processes consider a silent process dead.
const deadAfter = 5 * time.Second

// crashPoints are before and after each commit on a tick's way.
var crashPoints = []crashPoint{
	{"sweep.before_commit", "sweep", false}, {"sweep.committed", "sweep", false},
	{"open.before_commit", "dispatch", false}, {"open.committed", "dispatch", false},
	{"push.before", "dispatch", false}, {"push.answered", "dispatch", false},
	{"results.before_commit", "dispatch", false}, {"results.committed", "dispatch", false},
	{"take_over.committed", "dispatch", true},
	{"lease.before_commit", "api", false}, {"lease.committed", "api", false},
	{"finish.before_commit", "api", false}, {"finish.committed", "api", false},
}
