package carillon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	longestTrouble = 4 // failed attempts after which the wait stays the same, so that workers soon find a server that is back

	leaseMost  = 1000                   // ticks in one request, of any kind
	requestGap = 25 * time.Millisecond  // between requests of one kind; all that the gap gathers is one request
	aheadOf    = 100 * time.Millisecond // the worker leases as many ticks ahead as its handlers complete in this time
	lastWords  = 5 * time.Second        // for reports, after the handlers have ended or their time is over
)

// shift is one run of a worker. A leased tick goes through a queue to a goroutine of its own, which takes one of the slots, and then to the
// report. Heartbeats extend its lease until it is reported.
type shift struct {
	client  *Client
	config  WorkerConfig
	handler map[string]handler
	log     *slog.Logger

	queue    chan job
	slots    chan struct{} // each running handler takes one
	room     room
	held     held
	outcomes chan outcome

	handlers    sync.WaitGroup  // of handlers and the goroutine that starts them
	handling    context.Context // ends all handlers
	endHandling context.CancelCauseFunc
	reporting   context.Context // ends reports and heartbeats
	endReports  context.CancelFunc
	beating     context.Context // ends the heartbeats
	endBeats    context.CancelFunc
	loops       sync.WaitGroup // the reporter and the heartbeats
	ended       chan struct{}  // closed when no handler reports any more
	unreported  atomic.Int64   // outcomes that the server may not have
}

func newShift(w *Worker) *shift {
	s := &shift{
		client:   w.client,
		config:   w.config,
		handler:  w.handlers,
		log:      w.config.Log.With("worker", w.config.Name),
		queue:    make(chan job, w.config.Concurrency+leaseMost),
		slots:    make(chan struct{}, w.config.Concurrency),
		room:     newRoom(w.config.Concurrency),
		held:     held{ticks: map[string]*hold{}},
		outcomes: make(chan outcome, leaseMost),
		ended:    make(chan struct{}),
	}
	s.handling, s.endHandling = context.WithCancelCause(context.Background())
	s.reporting, s.endReports = context.WithCancel(context.Background())
	s.beating, s.endBeats = context.WithCancel(s.reporting)
	s.handlers.Go(s.handle)
	s.loops.Go(s.report)
	s.loops.Go(s.beat)
	return s
}

// lease leases ticks until ctx ends, by one long poll at a time. While answers are large and full, a second poll runs beside it, so that the
// next ticks arrive while the last ones are read.
func (s *shift) lease(ctx context.Context, workflows []string) error {
	ctx, stop := context.WithCancel(ctx)
	var (
		beside sync.WaitGroup
		full   = make(chan struct{}, 1)
	)
	defer beside.Wait()
	defer stop()
	beside.Go(func() {
		for {
			select {
			case <-full:
			case <-ctx.Done():
				return
			}
			for {
				began := time.Now()
				got, asked, err := s.leaseOnce(ctx, workflows, time.Second)
				if err != nil || got < asked {
					break // the first poll gets the same error, and handles it
				}
				wait(ctx, requestGap-time.Since(began))
			}
		}
	})
	for worked, troubles := false, 0; ctx.Err() == nil; {
		began := time.Now()
		got, asked, err := s.leaseOnce(ctx, workflows, s.config.Wait)
		switch {
		case err == nil:
			worked, troubles = true, 0
			if got == asked && got >= leaseMost/2 {
				select {
				case full <- struct{}{}:
				default:
				}
			}
			if got > 0 {
				wait(ctx, requestGap-time.Since(began))
			}
		case ctx.Err() != nil:
		case !worked && hopeless(err):
			return err
		default:
			s.log.WarnContext(ctx, "cannot lease ticks", "error", err)
			wait(ctx, firstBackoff+pauseAfter(err, troubles))
			troubles = min(troubles+1, longestTrouble)
		}
	}
	return nil
}

// hopeless reports whether another attempt would get the same error.
func hopeless(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Status >= 400 && refused.Status < 500 && !refused.passing()
}

// leaseOnce leases as many ticks as there is room for, and starts them.
func (s *shift) leaseOnce(ctx context.Context, workflows []string, poll time.Duration) (got, asked int, err error) {
	asked = s.room.take(ctx, leaseMost)
	if asked == 0 {
		return 0, 0, ctx.Err()
	}
	ticks, err := s.client.Lease(ctx, LeaseParams{
		Workflows: workflows,
		Queues:    s.config.Queues,
		Max:       asked,
		Wait:      poll,
		Lease:     s.config.Lease,
		Worker:    s.config.Name,
	})
	s.room.give(asked - len(ticks))
	until := time.Now().Add(s.config.Lease)
	for _, t := range ticks {
		s.start(t, until)
	}
	return len(ticks), asked, err
}

// job is a tick on its way to its handler.
type job struct {
	tick Tick[json.RawMessage]
	held *hold
	ctx  context.Context // of the handler
	end  context.CancelCauseFunc
}

// start queues a tick for its handler. The queue has room for all ticks that may be leased.
func (s *shift) start(t Tick[json.RawMessage], until time.Time) {
	ctx, end := context.WithCancelCause(s.handling)
	h := &hold{id: t.TickID, token: t.LeaseToken, until: until, end: end}
	s.held.add(h)
	s.queue <- job{t, h, ctx, end}
}

// handle runs queued ticks in the order of their leases, each in a goroutine of its own when a slot is free.
func (s *shift) handle() {
	for j := range s.queue {
		select {
		case s.slots <- struct{}{}:
			s.handlers.Go(func() { s.run(j) })
		case <-s.handling.Done():
			s.ran(j, nil, context.Cause(j.ctx))
		}
	}
}

// run runs a tick's handler.
func (s *shift) run(j job) {
	began := time.Now()
	run := s.handler[j.tick.Workflow]
	if run == nil {
		run = func(context.Context, Tick[json.RawMessage]) (any, error) {
			return nil, errors.New("this worker has no handler for the workflow")
		}
	}
	if j.ctx.Err() != nil { // cancelled or lost while it waited for the slot
		run = func(context.Context, Tick[json.RawMessage]) (any, error) { return nil, context.Cause(j.ctx) }
	}
	safely(j.ctx, run, j.tick, func(result any, err error) {
		<-s.slots
		s.room.ran(time.Since(began))
		s.ran(j, result, err)
	})
}

// ran passes the outcome of a tick to the report.
func (s *shift) ran(j job, result any, err error) {
	j.end(nil)
	if err != nil {
		logFailure(j.ctx, s.log, j.tick, err)
	}
	select {
	case s.outcomes <- newOutcome(j.held, result, err):
	case <-s.ended:
	}
	s.room.give(1)
}

// end waits for the handlers and reports their outcomes. Its wait is bounded: it abandons a handler that ignores its context, and the tick goes
// to another worker when the lease ends.
func (s *shift) end() error {
	close(s.queue)
	all := make(chan struct{})
	go func() { s.handlers.Wait(); close(all) }()
	var err error
	select {
	case <-all:
	case <-time.After(s.config.ShutdownTimeout):
		s.endHandling(ErrShutdown)
		select {
		case <-all:
		case <-time.After(lastWords):
			err = fmt.Errorf("carillon: %d handlers did not end within %s", len(s.slots), s.config.ShutdownTimeout)
		}
	}
	close(s.ended)
	give := time.AfterFunc(lastWords, s.endReports)
	s.endBeats()
	s.loops.Wait()
	give.Stop()
	s.endReports()
	s.endHandling(ErrShutdown)
	if n := s.unreported.Load(); n > 0 {
		err = errors.Join(err, fmt.Errorf("carillon: %d ticks could not be reported, and will be delivered again", n))
	}
	return err
}
