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
	leaseMost  = 1000                   // ticks in one request, of any kind
	requestGap = 25 * time.Millisecond  // between requests of one kind; all items that come within the gap go into one request
	aheadOf    = 100 * time.Millisecond // the worker leases as many ticks ahead as its handlers complete in this time
	lastWords  = 5 * time.Second        // for reports, after the handlers have ended or their time is over
)

// shift is one run of a worker. A leased tick goes through the queue of its lane to a goroutine of its own, which takes one of the slots, and
// then to the report. Heartbeats extend its lease until it is reported.
type shift struct {
	client *Client
	config WorkerConfig
	log    *slog.Logger

	lanes    []*lane
	slots    chan struct{} // each running handler takes one
	held     held
	outcomes chan outcome

	handlers    sync.WaitGroup  // of handlers and the goroutines that start them
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
		log:      w.config.Log.With("worker", w.config.Name),
		lanes:    lanes(w),
		slots:    make(chan struct{}, w.config.Concurrency),
		held:     held{ticks: map[string]*hold{}},
		outcomes: make(chan outcome, leaseMost),
		ended:    make(chan struct{}),
	}
	s.handling, s.endHandling = context.WithCancelCause(context.Background())
	s.reporting, s.endReports = context.WithCancel(context.Background())
	s.beating, s.endBeats = context.WithCancel(s.reporting)
	for _, l := range s.lanes {
		s.handlers.Go(func() { s.handle(l) })
	}
	s.loops.Go(s.report)
	s.loops.Go(s.beat)
	return s
}

// job is a tick on its way to its handler.
type job struct {
	tick Tick[json.RawMessage]
	held *hold
	ctx  context.Context // of the handler
	end  func()          // releases ctx
}

// start queues a tick for its handler. The queue has room for all ticks that may be leased.
func (s *shift) start(l *lane, t Tick[json.RawMessage], leased time.Time) {
	ctx, cancel := context.WithCancelCause(s.handling)
	end := func() { cancel(nil) }
	if timeout, err := time.ParseDuration(t.Timeout); err == nil && timeout > 0 {
		ctx, end = context.WithDeadlineCause(ctx, leased.Add(timeout), ErrTimeout)
	}
	h := &hold{id: t.TickID, token: t.LeaseToken, until: leased.Add(s.config.Lease), end: cancel}
	s.held.add(h)
	l.queue <- job{t, h, ctx, end}
}

// handle runs the queued ticks of a lane in the order of their leases, each in a goroutine of its own when a slot is free.
func (s *shift) handle(l *lane) {
	for j := range l.queue {
		if take(s.handling, l.slots) && take(s.handling, s.slots) {
			s.handlers.Go(func() { s.run(l, j) })
			continue
		}
		s.ran(l, j, nil, context.Cause(j.ctx))
	}
}

// take waits for a slot and reports whether it got one before ctx ended.
func take(ctx context.Context, slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// run runs a tick's handler.
func (s *shift) run(l *lane, j job) {
	began := time.Now()
	run := l.run[j.tick.Workflow]
	if run == nil {
		run = func(context.Context, Tick[json.RawMessage]) (any, error) {
			return nil, errors.New("this worker has no handler for the workflow")
		}
	}
	if j.ctx.Err() != nil { // cancelled or lost while it waited for the slot
		run = func(context.Context, Tick[json.RawMessage]) (any, error) { return nil, context.Cause(j.ctx) }
	}
	ctx := traced(j.ctx, s.client.propagator, j.tick.Traceparent)
	if s.config.Hooks.Started != nil {
		s.config.Hooks.Started(ctx, j.tick)
	}
	safely(ctx, run, j.tick, func(result any, err error) {
		<-s.slots
		<-l.slots
		took := time.Since(began)
		l.ran(took)
		result, err = settle(result, err)
		if s.config.Hooks.Ended != nil {
			s.config.Hooks.Ended(ctx, EndedTick{Tick: j.tick, Took: took, Err: err})
		}
		s.ran(l, j, result, err)
	})
}

// ran passes the outcome of a tick to the report.
func (s *shift) ran(l *lane, j job, result any, err error) {
	j.end()
	if err != nil {
		logFailure(j.ctx, s.log, j.tick, err)
	}
	select {
	case s.outcomes <- newOutcome(j.held, result, err):
	case <-s.ended:
	}
	l.give(1)
}

// end waits for the handlers and reports their outcomes. Its wait is bounded: it abandons a handler that ignores its context, and the tick goes
// to another worker when the lease ends.
func (s *shift) end() error {
	for _, l := range s.lanes {
		close(l.queue)
	}
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
