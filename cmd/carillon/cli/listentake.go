package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

const (
	leaseWait  = 20 * time.Second // of a long poll
	leaseFor   = "1m"
	beatEvery  = 20 * time.Second
	reportTime = 5 * time.Second // to report a result after Ctrl-C
	othersSeen = 2 * time.Minute // a tick that succeeded within this time proves another worker
)

// allowed returns an error if the workflow has an endpoint, or if another worker took one of its ticks a moment ago. --yes allows it.
func (l *listener) allowed(ctx context.Context) error {
	if l.s.YesGiven() {
		return nil
	}
	_, o, err := fetch(ctx, l.s, api.Request{Path: api.Path("v1", "workflows", l.workflow)})
	if err != nil {
		return err
	}
	if endpoint := o.At("endpoint"); !endpoint.Null() {
		return refused("the ticks of %s are pushed to the endpoint %s: a worker gets those only that it held before", l.workflow, endpoint)
	}
	since := l.s.Env.Now().Add(-othersSeen).UTC().Format(time.RFC3339)
	// A tick that waits for a worker has the state running too, so only a tick that has succeeded proves that a worker exists.
	_, o, err = fetch(ctx, l.s, api.Request{Path: "/v1/ticks", Query: query("workflow", l.workflow, "state", "succeeded", "from", since, "limit", "1")})
	if err != nil {
		return err
	}
	if ticks := o.At("items").Items(); len(ticks) > 0 {
		return refused("another worker finished a tick of %s at %s, and would miss those that this command takes", l.workflow, ticks[0].At("ended_at"))
	}
	return nil
}

func refused(format string, args ...any) error {
	return &exit.Error{Code: exit.Conflict, Err: fmt.Errorf(format, args...), Remedy: "send copies without --take, or take them with --yes"}
}

// lease leases ticks and works on them until ctx ends.
func (l *listener) lease(ctx context.Context) error {
	client := patient(l.s, leaseWait+30*time.Second)
	var group errgroup.Group
	group.SetLimit(l.concurrency)
	defer func() { _ = group.Wait() }() // its functions return no errors
	free := make(chan struct{}, l.concurrency)
	for range l.concurrency {
		free <- struct{}{}
	}
	l.s.Note("ready   waiting for ticks; Ctrl-C ends it")
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-free:
			free <- struct{}{}
		}
		ticks, err := l.leased(ctx, client, len(free))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, tick := range ticks {
			<-free
			group.Go(func() error {
				l.work(ctx, tick)
				free <- struct{}{}
				return nil
			})
		}
	}
}

// leased returns ticks; none if no tick came in time.
func (l *listener) leased(ctx context.Context, client *api.Client, most int) ([]json.RawMessage, error) {
	body, err := json.Marshal(map[string]any{
		"workflows": []string{l.workflow}, "max": most, "wait": leaseWait.String(), "lease": leaseFor, "worker": "carillon listen",
	})
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(ctx, api.Request{Method: "POST", Path: "/v1/ticks/lease", Body: body})
	if err != nil {
		return nil, err
	}
	var handed struct{ Ticks []json.RawMessage }
	err = json.Unmarshal(answer.Body, &handed)
	return handed.Ticks, err
}

// work sends a tick to the program, keeps its lease meanwhile, and reports the result.
func (l *listener) work(ctx context.Context, tick json.RawMessage) {
	o, err := output.Read(tick)
	if err != nil {
		l.results <- forwarded{err: err, Error: err.Error()}
		return
	}
	token := o.At("lease_token").String()
	working, lost := context.WithCancelCause(ctx)
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		l.beat(working, o.At("tick_id").String(), token, lost)
	}()
	r := l.send(working, named(o), tick, nil)
	gone := errors.Is(context.Cause(working), errLeaseLost)
	if r.err == nil && r.answer.Accepted() {
		r.Result = "accepted: the program reports the result"
		l.results <- r
		<-beats // the lease is kept until the program has reported, or ctx ends
		lost(nil)
		return
	}
	lost(nil)
	<-beats
	if gone {
		r.Result = lostResult
		l.results <- r
		return
	}
	l.results <- l.report(ctx, r, token)
}

const lostResult = "lost: the tick was cancelled, or its time is over"

var errLeaseLost = errors.New("the lease is lost")

// beat keeps a lease until ctx ends or the lease is lost.
func (l *listener) beat(ctx context.Context, id, token string, lost context.CancelCauseFunc) {
	body, _ := json.Marshal(map[string]string{"lease_token": token, "lease": leaseFor}) // texts can always be encoded
	for sleep(ctx, beatEvery) == nil {
		_, err := l.s.API.Do(ctx, api.Request{Method: "POST", Path: api.Path("v1", "ticks", id, "heartbeat"), Body: body})
		if api.HasStatus(err, 409) || api.HasStatus(err, 404) {
			lost(errLeaseLost)
			return
		}
	}
}

// report reports the result of a tick, also when the command is stopped: another worker then gets the tick at once.
func (l *listener) report(ctx context.Context, r forwarded, token string) forwarded {
	verb, result := "complete", "completed"
	members := map[string]any{"lease_token": token}
	if !(r.err == nil && r.answer.Good()) {
		verb, result, members["error"] = "fail", "failed", r.Error
		if ctx.Err() != nil {
			members["error"] = "carillon listen was stopped"
		}
		if wait := r.answer.Wait; wait > 0 {
			members["retry_after"] = strconv.Itoa(max(1, int(wait.Seconds()))) + "s"
		}
	}
	body, err := json.Marshal(members)
	if err == nil {
		reporting, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime)
		defer cancel()
		_, err = l.s.API.Do(reporting, api.Request{Method: "POST", Path: api.Path("v1", "ticks", r.TickID, verb), Body: body})
	}
	switch {
	case api.HasStatus(err, 409):
		result = lostResult
	case err != nil:
		result = "not reported: " + err.Error()
	}
	r.Result = result
	return r
}
