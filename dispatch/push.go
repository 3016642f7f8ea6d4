package dispatch

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/sabotage"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	longestAnswer = 15 * time.Second // or the timeout, where that is shorter
	answerRead    = 64 << 10
)

// pusher makes the requests: signed, to public addresses only, over HTTP/1.1, without redirects or a proxy.
type pusher struct {
	d       *Dispatch
	client  pushClient
	failing ownFailures
}

func newPusher(d *Dispatch) *pusher { return &pusher{d: d, client: newPushClient(d.Outbound)} }

// outcome is what a request came to for one delivery.
type outcome struct {
	*delivery
	ending
	awaited time.Time // not zero: the worker has taken it and answers by then
	gone    bool      // the endpoint wants no more
	held    time.Time // not zero: it was not sent, and is to be by then
}

// push makes one request of a batch of deliveries to one endpoint, and reports the outcome of each. Ticks whose timing cannot be
// computed end without a request.
func (p *pusher) push(ctx context.Context, batch []*delivery) {
	started := time.Now()
	sabotage.Crash("push.before")
	timings, newer, err := p.d.timings(ctx, batch)
	if err != nil {
		if ctx.Err() == nil {
			p.putOff(batch, started, err)
		}
		return
	}
	if batch, timings = p.setAside(batch, timings, newer); len(batch) == 0 {
		return
	}
	outcomes, err := p.request(ctx, batch, timings, started)
	sabotage.Crash("push.answered")
	if sabotage.AnyAnswerIsSuccess.On() {
		outcomes, err = everyOne(batch, func(o *outcome) { o.outcome = succeeded }), nil
	}
	if ctx.Err() != nil {
		return // broken off at the end of this process: another sends them again
	}
	if own, ours := errors.AsType[*ownError](err); ours {
		p.putOff(batch, started, own.error)
		return
	}
	p.failing.end()
	e := batch[0].endpoint
	well := err == nil && (outcomes[0].status == nil || *outcomes[0].status < 500)
	p.d.sender.came(endpointName{e.tenant, e.name}, well)
	if err != nil {
		outcomes = everyOne(batch, func(o *outcome) { o.outcome, o.err = failedOutcome(err), keep(err.Error()) })
	}
	for i := range outcomes {
		outcomes[i].started = &started
	}
	p.d.results.add(outcomes)
}

// putOff holds a batch that was not sent because of a failure of ours.
func (p *pusher) putOff(batch []*delivery, now time.Time, cause error) {
	wait := p.failing.wait(now)
	if p.d.told.Due("push", now) {
		p.d.Log.Warn("pushes are not sent, and their ticks wait", "tenant", batch[0].tenant, "endpoint", batch[0].endpoint.name, "wait", wait, "error", cause)
	}
	p.d.results.add(everyOne(batch, func(o *outcome) { o.held = now.Add(wait + rand.N(wait)) }))
}

// setAside returns the deliveries that have a timing, with their timings. It holds those whose timing a newer program wrote, as
// that program can send them, and ends the others, each by itself.
func (p *pusher) setAside(batch []*delivery, timings []*calendar.Timing, newer []bool) ([]*delivery, []*calendar.Timing) {
	if !slices.Contains(timings, nil) {
		return batch, timings
	}
	var sound, later, broken []*delivery
	for i, one := range batch {
		switch {
		case timings[i] != nil:
			sound = append(sound, one)
		case newer[i]:
			later = append(later, one)
		default:
			broken = append(broken, one)
		}
	}
	if len(later) > 0 {
		p.d.results.add(everyOne(later, func(o *outcome) { o.held = time.Now().Add(newerWait) }))
	}
	if len(broken) > 0 {
		p.d.results.add(everyOne(broken, func(o *outcome) {
			o.outcome, o.final, o.unsent, o.err = failed, true, true, new("the spec of the schedule's version cannot be computed")
		}))
	}
	return sound, slices.DeleteFunc(timings, func(t *calendar.Timing) bool { return t == nil })
}

func everyOne(batch []*delivery, fill func(*outcome)) []outcome {
	outcomes := make([]outcome, len(batch))
	for i, one := range batch {
		outcomes[i].delivery = one
		outcomes[i].TickKey, outcomes[i].attempt = one.tick.RowKey(), one.tick.Attempt
		fill(&outcomes[i])
	}
	return outcomes
}

func (p *pusher) request(ctx context.Context, batch []*delivery, timings []*calendar.Timing, now time.Time) ([]outcome, error) {
	e := batch[0].endpoint
	body, id := p.body(batch, timings)
	timeout := longestAnswer
	for _, one := range batch {
		timeout = min(timeout, one.timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := p.post(ctx, e, id, body, now)
	if err != nil {
		return nil, err
	}
	return judge(batch, r, now), nil
}

// response is what an endpoint answered: its status, and the first bytes of the body.
type response struct {
	status int
	body   []byte
	wait   time.Duration // what Retry-After asks for, if the status is 429 or 503
}

// accepted reports whether the ticks are taken, and each result comes in a request of its own: 202.
func (r response) accepted() bool { return r.status == http.StatusAccepted }

// gone reports whether the endpoint wants no more requests: 410.
func (r response) gone() bool { return r.status == http.StatusGone }

// good reports whether the status is one of success: 2xx.
func (r response) good() bool { return r.status/100 == 2 }

// post makes one signed request, and returns the response.
func (p *pusher) post(ctx context.Context, e *endpoint, id string, body []byte, at time.Time) (r response, err error) {
	signature, err := sign(e.secrets, id, at, body)
	if sabotage.UnsignedBody.On() {
		signature, err = sign(e.secrets, id, at, nil)
	}
	if err != nil {
		return r, &ownError{err}
	}
	ctx, exchange := watched(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return r, errors.New("the URL of the endpoint cannot be used")
	}
	for name, value := range e.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "carillon")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("Webhook-Signature", signature)
	resp, err := p.client.do(req, exchange)
	if err != nil {
		return r, requestError(err)
	}
	defer resp.Body.Close()
	r.status = resp.StatusCode
	if r.body, err = io.ReadAll(io.LimitReader(resp.Body, answerRead)); err != nil {
		return r, fmt.Errorf("read the answer: %w", requestError(err))
	}
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
		r.wait = retryAfter(resp.Header.Get("Retry-After"), at)
	}
	return r, nil
}

// errNoSecret may be told to the tenant, who can rotate the secret.
var errNoSecret = errors.New("no secret of the endpoint can be read")

// sign is the header of Standard Webhooks: a signature by each secret that is valid.
func sign(secrets [][]byte, id string, at time.Time, body []byte) (string, error) {
	if len(secrets) == 0 {
		return "", errNoSecret
	}
	signatures := make([]string, len(secrets))
	for i, secret := range secrets {
		hook, err := standardwebhooks.NewWebhookRaw(secret)
		if err != nil {
			return "", fmt.Errorf("sign: %w", err)
		}
		if signatures[i], err = hook.Sign(id, at, body); err != nil {
			return "", fmt.Errorf("sign: %w", err)
		}
	}
	return strings.Join(signatures, " "), nil
}

// body writes a request's body: the tick itself, or a batch of ticks under an id of the batch's own.
func (p *pusher) body(batch []*delivery, timings []*calendar.Timing) (body []byte, id string) {
	single := batch[0].endpoint.batch == 1
	if !single {
		body, id = append(body, `{"ticks":[`...), "batch_"+crand.Text()
	}
	for i, one := range batch {
		if i > 0 {
			body = append(body, ',')
		}
		k := one.tick.RowKey()
		m := p.d.messages.Complete(message.Message{
			Tick: &one.tick, Workflow: one.workflow, Key: one.key, WorkflowVersion: one.version, MaxAttempts: one.maxAttempts,
			Token: p.d.messages.Seal(one.tenant, k, message.Token{Attempt: one.tick.Attempt}), Body: one.payload,
		}, timings[i])
		body, one.id = m.AppendJSON(body), m.ID
		if single {
			id = one.id
		}
	}
	if !single {
		body = append(body, `]}`...)
	}
	return body, id
}

// slotQuery is how long a slot waits for the database: a slot that waits sends nothing.
const slotQuery = 2 * time.Second

// timings returns the timings of the deliveries, in their order: see timingsOf.
func (d *Dispatch) timings(ctx context.Context, batch []*delivery) (timings []*calendar.Timing, newer []bool, err error) {
	if kept := d.keptTimings(batch); kept != nil {
		return kept, make([]bool, len(batch)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, slotQuery)
	defer cancel()
	ticks := make([]*record.Tick, len(batch))
	for i, one := range batch {
		ticks[i] = &one.tick
	}
	return d.messages.TimingsOf(ctx, d.Pool, batch[0].tenant, ticks)
}

// keptTimings returns the timings of the deliveries where all are in memory, else nil.
func (d *Dispatch) keptTimings(batch []*delivery) []*calendar.Timing {
	timings := make([]*calendar.Timing, len(batch))
	for i, one := range batch {
		if one.tick.CohortID == nil {
			return nil
		}
		if timings[i] = d.Timings.Kept(*one.tick.CohortID); timings[i] == nil {
			return nil
		}
	}
	return timings
}

// judge returns what a response means for each delivery.
func judge(batch []*delivery, r response, started time.Time) []outcome {
	status := int32(r.status)
	if !r.good() {
		return everyOne(batch, func(o *outcome) {
			o.outcome, o.status, o.retryAfter = failed, &status, r.wait
			o.err = keep(fmt.Sprintf("the endpoint answered %d: %s", status, bytes.TrimSpace(r.body)))
			o.gone = r.gone()
		})
	}
	if batch[0].endpoint.batch > 1 && len(bytes.TrimSpace(r.body)) > 0 {
		return judgeEach(batch, r.body, status, started)
	}
	return everyOne(batch, func(o *outcome) {
		o.outcome, o.status = succeeded, &status
		if r.accepted() {
			o.awaited = started.Add(o.delivery.timeout)
		}
	})
}

// judgeEach reads the answer to a batch. What it does not name, or names in another way, has failed.
func judgeEach(batch []*delivery, answer []byte, status int32, started time.Time) []outcome {
	var body struct {
		Results []struct {
			TickID string `json:"tick_id"`
			Status string `json:"status"`
			Error  string `json:"error"`
		} `json:"results"`
	}
	err := json.Unmarshal(answer, &body)
	said := map[string]int{}
	for i, r := range body.Results {
		said[r.TickID] = i
	}
	return everyOne(batch, func(o *outcome) {
		o.status = &status
		i, named := said[o.delivery.id]
		switch {
		case err != nil:
			o.outcome, o.err = failed, keep("the answer to the batch is not the JSON it should be: "+err.Error())
		case !named:
			o.outcome, o.err = failed, keep("the answer to the batch does not name the tick")
		case body.Results[i].Status == "succeeded":
			o.outcome = succeeded
		case body.Results[i].Status == "running":
			o.outcome, o.awaited = succeeded, started.Add(o.delivery.timeout)
		default:
			o.outcome, o.err = failed, keep(body.Results[i].Error)
		}
	})
}

// retryAfter reads the header (RFC 9110 section 10.2.3): seconds or a date; at most an hour.
func retryAfter(text string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		wait = time.Duration(min(n, 3600)) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return max(0, min(wait, time.Hour))
}
