package carillon

import (
	"errors"
	"sync"
	"time"
)

const (
	reportsAtOnce = 4
	reportBytes   = 512 << 10 // of results in one request
	manyOutcomes  = 50        // in one request
	busyGap       = 100 * time.Millisecond
)

// outcome is the result of a tick's handler, which is not yet reported.
type outcome struct {
	held   *hold
	finish finish
	failed error // nil: it succeeded
}

func newOutcome(h *hold, result any, err error) outcome {
	o := outcome{held: h, failed: err, finish: finish{TickID: h.id, LeaseToken: h.token, Outcome: "complete"}}
	if err == nil {
		o.finish.Result, err = raw(result)
		if err != nil { // the handler succeeded, but its result cannot be encoded
			o.failed = Permanent(err)
		}
	}
	if o.failed != nil {
		retry, after := retryOf(o.failed)
		o.finish = finish{TickID: h.id, LeaseToken: h.token, Outcome: "fail", Error: errorText(o.failed), Retry: &retry}
		if after > 0 {
			o.finish.RetryAfter = seconds(after)
		}
	}
	return o
}

// report sends outcomes in batches until the shift has ended. After an idle time it sends an outcome at once; otherwise it collects the
// outcomes of a gap and sends them together. The gap is longer while there are many outcomes, because one large request costs the server
// much less than two small ones.
func (s *shift) report() {
	var (
		sending sync.WaitGroup
		sender  = make(chan struct{}, reportsAtOnce)
		last    time.Time
		gap     = requestGap
	)
	defer sending.Wait()
	for {
		first, ok := s.nextOutcome()
		if !ok {
			return
		}
		outcomes := s.gather(first, last.Add(gap))
		last, gap = time.Now(), requestGap
		if len(outcomes) >= manyOutcomes {
			gap = busyGap
		}
		sender <- struct{}{}
		sending.Go(func() {
			defer func() { <-sender }()
			s.send(outcomes)
		})
	}
}

// nextOutcome waits for an outcome. It reports false when the shift has ended and none is left.
func (s *shift) nextOutcome() (outcome, bool) {
	select {
	case o := <-s.outcomes:
		return o, true
	case <-s.ended:
	}
	select {
	case o := <-s.outcomes:
		return o, true
	default:
		return outcome{}, false
	}
}

// gather adds the outcomes that come until the given time to first, up to the size of one request.
func (s *shift) gather(first outcome, until time.Time) []outcome {
	outcomes, size := []outcome{first}, len(first.finish.Result)
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	late := timer.C
	for len(outcomes) < leaseMost && size < reportBytes {
		if late == nil {
			select {
			case o := <-s.outcomes:
				outcomes, size = append(outcomes, o), size+len(o.finish.Result)
				continue
			default:
				return outcomes
			}
		}
		select {
		case o := <-s.outcomes:
			outcomes, size = append(outcomes, o), size+len(o.finish.Result)
		case <-late:
			late = nil
		case <-s.ended:
			late = nil
		}
	}
	return outcomes
}

// send reports outcomes until the server has them or their leases have ended.
func (s *shift) send(outcomes []outcome) {
	for troubles := 0; len(outcomes) > 0; troubles++ {
		err := s.sendOnce(outcomes)
		if err == nil {
			return
		}
		if s.reporting.Err() != nil {
			s.unreported.Add(int64(len(outcomes)))
			return
		}
		if refused, ok := asType[*Error](err); ok && errors.Is(refused, ErrInvalid) {
			s.split(outcomes, refused)
			return
		}
		s.log.Warn("cannot report ticks", "ticks", len(outcomes), "error", err)
		wait(s.reporting, firstBackoff+pauseAfter(err, min(troubles, longestTrouble)))
		outcomes = s.stillHeld(outcomes)
	}
}

func (s *shift) stillHeld(outcomes []outcome) []outcome {
	kept := outcomes[:0]
	for _, o := range outcomes {
		if s.held.has(o.held) {
			kept = append(kept, o)
		}
	}
	return kept
}

// sendOnce sends the request. The server's answer for a single tick is final.
func (s *shift) sendOnce(outcomes []outcome) error {
	finishes := make([]finish, len(outcomes))
	for i, o := range outcomes {
		finishes[i] = o.finish
	}
	began := time.Now()
	verdicts, err := batch(s.reporting, s.client, "finish", finishes)
	late := 0
	for _, v := range verdicts {
		if v.Status >= 300 {
			late++
			s.log.Info("outcome came too late", "tick_id", v.TickID, "status", v.Status, "code", v.Code)
		}
	}
	if s.config.Hooks.Reported != nil {
		s.config.Hooks.Reported(ReportedTicks{Ticks: len(outcomes), Late: late, Took: time.Since(began), Err: err})
	}
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		s.held.drop(o.held)
	}
	return nil
}

// split finds the outcome that made the server refuse the whole request. The server cannot store its result, so the tick fails.
func (s *shift) split(outcomes []outcome, refused *Error) {
	if len(outcomes) > 1 {
		half := len(outcomes) / 2
		s.send(outcomes[:half])
		s.send(outcomes[half:])
		return
	}
	o := outcomes[0]
	s.log.Warn("outcome refused", "tick_id", o.finish.TickID, "error", refused)
	if o.failed != nil {
		s.held.drop(o.held)
		return
	}
	s.send([]outcome{newOutcome(o.held, nil, Permanent(errors.New("result refused: "+refused.Detail)))})
}
