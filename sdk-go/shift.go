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
	longestTrouble = 4 // attempts after which waiting grows no more: a server that comes back finds its workers soon

	leaseMost  = 1000                   // ticks in one request, of any kind
	requestGap = 25 * time.Millisecond  // between requests of one kind while ticks flow: what the gap gathers goes in one
	aheadOf    = 100 * time.Millisecond // ticks are leased ahead of the handlers by what these do in this time
	lastWords  = 5 * time.Second        // for results, once the handlers have ended or had their time
)

// shift is one run of a worker. Ticks flow from leasing, through a queue and a goroutine each, which takes one of the
// slots, to the report; until they are reported, heartbeats keep their leases.
type shift struct {
	client  *Client
	config  WorkerConfig
	handler map[string]handler
	log     *slog.Logger

	queue    chan job
	slots    chan struct{} // one taken for each handler at work
	room     room
	held     held
	outcomes chan outcome

	handlers    sync.WaitGroup  // and who starts them
	handling    context.Context // ends all handlers
	endHandling context.CancelCauseFunc
	reporting   context.Context // ends requests that report and heartbeat
	endReports  context.CancelFunc
	beating     context.Context // ends the heartbeats
	endBeats    context.CancelFunc
	loops       sync.WaitGroup // the reporter and the heartbeats
	ended       chan struct{}  // closed when no handler will report any more
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

// lease keeps leasing until ctx ends, by one long poll at a time. While that comes back large and full, a second one runs
// beside it, so that the next ticks are on their way while the last are read.
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
					break // trouble shows in the first poll too, which deals with it
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

// hopeless tells of an answer that asking again will not change.
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

// start queues a tick for its handler. There is room in the queue for all that may be leased.
func (s *shift) start(t Tick[json.RawMessage], until time.Time) {
	ctx, end := context.WithCancelCause(s.handling)
	h := &hold{id: t.TickID, token: t.LeaseToken, until: until, end: end}
	s.held.add(h)
	s.queue <- job{t, h, ctx, end}
}

// handle runs what is queued, in the order in which it was leased, each in a goroutine of its own once there is a slot.
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

// ran hands on how a tick went.
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

// end waits for the handlers and reports what they did. It does not wait for ever: a handler that minds no context is
// left behind, and its tick goes to another worker when the lease ends.
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
		err = errors.Join(err, fmt.Errorf("carillon: %d ticks could not be reported, and will come again", n))
	}
	return err
}
