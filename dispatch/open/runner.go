package open

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
)

// RunsAtOnce is the number of runs of chunks that one process opens concurrently in each lane.
var RunsAtOnce = map[string]int{chunk.SmallLane: 4, chunk.LargeLane: 4, chunk.CatchUpLane: 2}

const (
	mostOffered = 64   // runs that wait in one lane: the others are left to River
	mostOpened  = 4096 // opened runs that are remembered until their job comes
)

// runner opens runs that are offered to this process at once, without waiting for River to find their jobs. River's search is slow while an
// old snapshot is open, because it reads the index entries of all earlier jobs. The job of an opened run finds nothing to do. The job
// opens the run itself if the runner failed or had no room.
type runner struct {
	open       func(ctx context.Context, run chunk.JobArgs, late bool) error
	dispatches bool // this process opens chunks
	lanes      map[string]*openLane

	mu      sync.Mutex
	runs    map[int64]*offered // by their first chunks
	opened  []int64            // keys of runs that have been opened, the oldest first
	context context.Context    // nil: the runner takes nothing
	cancel  context.CancelFunc
	closing chan struct{} // closed when no worker is to take another run
	working sync.WaitGroup
}

// openLane is one lane. Jobs and offered runs share its slots.
type openLane struct {
	slots   chan struct{}
	waiting []*offered // the first to be opened first
	workers int
	jobs    int       // of River, that wait for a slot or have one
	fetched time.Time // when River last brought a job or one ended
}

// offered is a run that was offered to the runner.
type offered struct {
	chunk.Run
	at      time.Time
	started bool
	done    chan struct{} // closed when the attempt to open it has ended
	err     error         // of the attempt, once done is closed
}

func newRunner(open func(context.Context, chunk.JobArgs, bool) error, dispatches bool) *runner {
	o := &runner{open: open, dispatches: dispatches, lanes: map[string]*openLane{}, runs: map[int64]*offered{}, closing: make(chan struct{})}
	for name, n := range RunsAtOnce {
		o.lanes[name] = &openLane{slots: make(chan struct{}, n)}
	}
	return o
}

// start lets the runner take runs until ctx ends.
func (o *runner) start(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.context, o.cancel = context.WithCancel(ctx)
	for _, l := range o.lanes {
		l.fetched = time.Now()
	}
}

// close gives up the runs that wait, and returns their lanes. It waits for those that are being opened, and ends them when ctx ends.
func (o *runner) close(ctx context.Context) (left []string) {
	o.mu.Lock()
	if o.context == nil {
		o.mu.Unlock()
		return nil
	}
	o.context = nil
	close(o.closing)
	defer o.cancel()
	defer context.AfterFunc(ctx, o.cancel)()
	for name, l := range o.lanes {
		if len(l.waiting) > 0 {
			left = append(left, name)
		}
		for _, r := range l.waiting {
			delete(o.runs, r.Chunk)
		}
		l.waiting = nil
	}
	o.mu.Unlock()
	o.working.Wait()
	return left
}

// offer takes runs, those of the highest priority first. It returns the lanes of the runs that are left to River.
func (o *runner) offer(runs []chunk.Run) (left []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, run := range runs {
		l := o.lanes[run.Lane]
		if o.context == nil || l == nil {
			left = append(left, run.Lane)
			continue
		}
		if o.runs[run.Chunk] != nil {
			continue
		}
		r := &offered{Run: run, at: time.Now(), done: make(chan struct{})}
		at, _ := slices.BinarySearchFunc(l.waiting, r, func(a, b *offered) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Chunk, b.Chunk))
		})
		l.waiting, o.runs[run.Chunk] = slices.Insert(l.waiting, at, r), r
		if last := len(l.waiting) - 1; last == mostOffered {
			delete(o.runs, l.waiting[last].Chunk)
			l.waiting, left = l.waiting[:last], append(left, run.Lane)
		}
		if l.workers < cap(l.slots) {
			l.workers++
			ctx := o.context
			o.working.Go(func() { o.work(ctx, l) })
		}
	}
	return left
}

// OfferNotified offers the runner a run from a notification of another process, if this process is the one that opens it.
func (o *Opener) OfferNotified(text string) {
	if run, ok := chunk.ParseRun(text); ok && o.runner.dispatches && o.cluster.Member.Opens(run.Chunk) {
		o.cluster.Notifier.Queued(o.runner.offer([]chunk.Run{run}))
	}
}

// work opens runs of a lane until none waits.
func (o *runner) work(ctx context.Context, l *openLane) {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-o.closing:
			return
		}
		r := o.next(l)
		if r == nil {
			<-l.slots
			return
		}
		r.err = o.try(ctx, r)
		<-l.slots
		o.mu.Lock()
		if r.err != nil {
			delete(o.runs, r.Chunk)
		} else {
			o.remember(r.Chunk)
		}
		o.mu.Unlock()
		close(r.done)
	}
}

// next takes the first run of a lane; nil: there is none, and the worker ends.
func (o *runner) next(l *openLane) *offered {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(l.waiting) == 0 {
		l.workers--
		return nil
	}
	r := l.waiting[0]
	l.waiting = l.waiting[1:]
	r.started = true
	return r
}

// try opens a run like its job. It logs no error: the job tries again and reports it.
func (o *runner) try(ctx context.Context, r *offered) (err error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("panic: %v", why)
		}
	}()
	return o.open(ctx, r.JobArgs, time.Since(r.at) > jobLate)
}

// remember records that a run is open, until its job comes. The caller holds the lock.
func (o *runner) remember(chunk int64) {
	if o.opened = append(o.opened, chunk); len(o.opened) > mostOpened {
		delete(o.runs, o.opened[0])
		o.opened = o.opened[1:]
	}
}

var errNotOffered = errors.New("this process was not offered the run")

// await waits for a run that is being opened, and returns its error. It removes a run that only waits, and returns errNotOffered: the
// caller then opens it.
func (o *runner) await(ctx context.Context, chunk int64) error {
	o.mu.Lock()
	r := o.runs[chunk]
	if r == nil {
		o.mu.Unlock()
		return errNotOffered
	}
	if !r.started {
		l := o.lanes[r.Lane]
		l.waiting = slices.DeleteFunc(l.waiting, func(other *offered) bool { return other == r })
		delete(o.runs, chunk)
		o.mu.Unlock()
		return errNotOffered
	}
	o.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slot waits for a slot of a lane. free returns the slot.
func (o *runner) slot(ctx context.Context, lane string) (free func(), err error) {
	l := o.lanes[lane]
	if l == nil {
		return func() {}, nil
	}
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fetched records that River has delivered a job of a lane. ended records the end of the job.
func (o *runner) fetched(lane string) (ended func()) {
	note := func(n int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if l := o.lanes[lane]; l != nil {
			l.jobs, l.fetched = l.jobs+n, time.Now()
		}
	}
	note(1)
	return func() { note(-1) }
}

// riverWithin is how long a lane without jobs waits for River.
const riverWithin = 2 * time.Second

// fetching returns the lanes whose jobs River delivers to this process. Chunks of other lanes do not wait for their jobs. A runner that is
// not started returns all lanes, because River had no time to deliver a job.
func (o *runner) fetching(now time.Time) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lanes := []string{}
	for name, l := range o.lanes {
		if o.context == nil || l.jobs > 0 || now.Sub(l.fetched) < riverWithin {
			lanes = append(lanes, name)
		}
	}
	return lanes
}
