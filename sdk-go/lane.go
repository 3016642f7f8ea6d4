package carillon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	longestTrouble = 4           // failed attempts after which the wait stays the same, so that workers soon find a server that is back
	longestRefusal = time.Minute // how long the server may refuse the credential before Run ends
)

// lane is the part of a worker that leases by requests of its own: one for all workflows without a limit, and one for each workflow with a limit.
type lane struct {
	workflows []string
	run       map[string]Handler // of all workflows
	queue     chan job
	slots     chan struct{} // each running handler of the lane takes one
	room      *room
	whole     *room // of the whole worker; nil: the worker has no other lane
}

// lanes returns the lanes of a worker.
func lanes(w *Worker) []*lane {
	var (
		all    []*lane
		shared []string
		run    = w.chain()
	)
	add := func(concurrency int, workflows ...string) {
		all = append(all, &lane{
			workflows: workflows, run: run,
			queue: make(chan job, concurrency+leaseMost), slots: make(chan struct{}, concurrency), room: newRoom(concurrency),
		})
	}
	for _, workflow := range w.workflows() {
		if limit := w.of[workflow].config.Concurrency; limit > 0 {
			add(min(limit, w.config.Concurrency), workflow)
			continue
		}
		shared = append(shared, workflow)
	}
	if len(shared) > 0 {
		add(w.config.Concurrency, shared...)
	}
	if len(all) > 1 {
		whole := newRoom(w.config.Concurrency)
		for _, l := range all {
			l.whole = whole
		}
	}
	return all
}

// give returns the places of n ticks.
func (l *lane) give(n int) {
	l.room.give(n)
	if l.whole != nil {
		l.whole.give(n)
	}
}

// ran notes the time of a handler.
func (l *lane) ran(took time.Duration) {
	l.room.ran(took)
	if l.whole != nil {
		l.whole.ran(took)
	}
}

// lease leases ticks for all lanes until ctx ends, or until the server refuses to let the worker work.
func (s *shift) lease(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var polls sync.WaitGroup
	errs := make([]error, len(s.lanes))
	for i, l := range s.lanes {
		polls.Go(func() {
			if errs[i] = s.poll(ctx, l); errs[i] != nil {
				stop(errs[i])
			}
		})
	}
	polls.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the other lanes would get the same one
		}
	}
	return nil
}

// poll leases ticks for a lane until ctx ends, by one long poll at a time. While answers are large and full, a second poll runs beside it, so
// that the next ticks arrive while the last ones are read.
func (s *shift) poll(ctx context.Context, l *lane) error {
	ctx, stop := context.WithCancel(ctx)
	var (
		beside sync.WaitGroup
		full   = make(chan struct{}, 1)
	)
	defer beside.Wait()
	defer stop()
	beside.Go(func() { s.pollBeside(ctx, l, full) })
	refused := refusals{}
	for troubles := 0; ctx.Err() == nil; {
		began := time.Now()
		got, asked, err := s.leaseOnce(ctx, l, s.config.Wait)
		if ctx.Err() != nil {
			break
		}
		if err := refused.note(err, time.Now()); err != nil {
			return err
		}
		if err != nil {
			s.log.WarnContext(ctx, "cannot lease ticks", "error", err)
			wait(ctx, firstBackoff+pauseAfter(err, troubles))
			troubles = min(troubles+1, longestTrouble)
			continue
		}
		troubles = 0
		if got == asked && got >= leaseMost/2 {
			select {
			case full <- struct{}{}:
			default:
			}
		}
		if got > 0 {
			wait(ctx, requestGap-time.Since(began))
		}
	}
	return nil
}

// pollBeside leases ticks without a wait after each signal, as long as answers are full.
func (s *shift) pollBeside(ctx context.Context, l *lane, full <-chan struct{}) {
	for {
		select {
		case <-full:
		case <-ctx.Done():
			return
		}
		for {
			began := time.Now()
			got, asked, err := s.leaseOnce(ctx, l, time.Second)
			if err != nil || got < asked {
				break // the first poll gets the same error, and handles it
			}
			wait(ctx, requestGap-time.Since(began))
		}
	}
}

// refusals remembers since when the server refuses the credential.
type refusals struct {
	worked bool // a request succeeded
	since  time.Time
}

// note notes the outcome of a request for ticks, and returns an error if the worker has to end because of it.
func (r *refusals) note(err error, now time.Time) error {
	switch {
	case err == nil:
		r.worked, r.since = true, time.Time{}
	case !r.worked && hopeless(err):
		return err
	case !errors.Is(err, ErrUnauthorized) && !errors.Is(err, ErrForbidden):
		r.since = time.Time{}
	case r.since.IsZero():
		r.since = now
	case now.Sub(r.since) >= longestRefusal:
		return fmt.Errorf("carillon: the server has refused the worker's credential for %s: %w", longestRefusal, err)
	}
	return nil
}

// hopeless reports whether another attempt would get the same error.
func hopeless(err error) bool {
	refused, ok := asType[*Error](err)
	return ok && refused.Status >= 400 && refused.Status < 500 && !refused.passing()
}

// leaseOnce leases as many ticks as there is room for, and starts them.
func (s *shift) leaseOnce(ctx context.Context, l *lane, poll time.Duration) (got, asked int, err error) {
	most := leaseMost
	if l.whole != nil {
		// What another lane leases meanwhile comes on top. A reservation would let an idle lane hold the room of all.
		if most = l.whole.take(ctx, leaseMost); most == 0 {
			return 0, 0, ctx.Err()
		}
		l.whole.give(most)
	}
	asked = l.room.take(ctx, most)
	if asked == 0 {
		return 0, 0, ctx.Err()
	}
	began := time.Now()
	ticks, err := s.client.Ticks.Lease(ctx, LeaseParams{
		Workflows: l.workflows,
		Queues:    s.config.Queues,
		Max:       asked,
		Wait:      poll,
		Lease:     s.config.Lease,
		Worker:    s.config.Name,
	})
	l.room.give(asked - len(ticks))
	if l.whole != nil {
		l.whole.give(-len(ticks))
	}
	now := time.Now()
	for _, t := range ticks {
		s.start(l, t, now)
	}
	if s.config.Hooks.Leased != nil {
		s.config.Hooks.Leased(LeasedTicks{Workflows: l.workflows, Ticks: len(ticks), Took: now.Sub(began), Err: err})
	}
	return len(ticks), asked, err
}
