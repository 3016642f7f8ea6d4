package push

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
	"github.com/carillonhq/carillon/dispatch/finish"
	"github.com/carillonhq/carillon/dispatch/message"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/trace"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	// LongestAnswer limits the time of a request. A shorter timeout of the ticks limits it too.
	LongestAnswer = 15 * time.Second
	answerRead    = 64 << 10 // bytes of an answer that are read
)

// requester makes requests: signed, to public addresses only, over HTTP/1.1, without redirects or a proxy.
type requester struct {
	d       *Pusher
	client  pushClient
	limiter *requestLimiter
	failing ownFailures
	health  healthBook
}

func newRequester(d *Pusher, c Config) *requester {
	return &requester{d: d, client: newPushClient(c.Outbound), limiter: newRequestLimiter(mostRequests, c.PushBytes)}
}

// outcome is the result of a request for one delivery.
type outcome struct {
	*Delivery
	finish.Ending
	awaited time.Time // not zero: the worker has accepted the tick, and answers by then
	gone    bool      // the endpoint wants no more requests
	held    time.Time // not zero: the tick was not sent, and is held until then
}

// push makes one request of a batch of deliveries to one endpoint, and reports the outcome of each. Ticks whose timing cannot be
// computed end without a request.
func (rs *requester) push(ctx context.Context, batch []*Delivery) {
	started := time.Now()
	sabotage.Crash("push.before")
	timings, newer, err := rs.d.timingsOf(ctx, batch)
	if err != nil {
		if ctx.Err() == nil {
			rs.putOff(batch, started, err)
		}
		return
	}
	if batch, timings = rs.setAside(batch, timings, newer); len(batch) == 0 {
		return
	}
	outcomes, err := rs.request(ctx, batch, timings, started)
	sabotage.Crash("push.answered")
	if sabotage.AnyAnswerIsSuccess.On() {
		outcomes, err = everyOne(batch, func(o *outcome) { o.Outcome = finish.Succeeded }), nil
	}
	if ctx.Err() != nil {
		return // this process ends: another one sends the ticks again
	}
	if own, ours := errors.AsType[*ownError](err); ours {
		rs.putOff(batch, started, own.error)
		return
	}
	rs.failing.end()
	e := batch[0].Endpoint
	well := err == nil && (outcomes[0].Status == nil || *outcomes[0].Status < 500)
	rs.d.sender.ended(EndpointName{e.Tenant, e.Name}, well)
	if err != nil {
		outcomes = everyOne(batch, func(o *outcome) { o.Outcome, o.Err = failedOutcome(err), finish.ErrorText(err.Error()) })
	}
	for i := range outcomes {
		outcomes[i].Started = &started
	}
	rs.recordSpans(outcomes, started)
	rs.health.note(EndpointName{e.Tenant, e.Name}, answered(outcomes[0], started), err == nil && outcomes[0].Outcome == finish.Succeeded)
	rs.d.results.add(outcomes)
}

// recordSpans makes a span of each attempt, under its tick.
func (rs *requester) recordSpans(outcomes []outcome, began time.Time) {
	if !rs.d.finish.Traces.On() {
		return
	}
	for i := range outcomes {
		o := &outcomes[i]
		f := trace.Facts{
			Tenant: int32(o.Tenant), Workflow: o.Workflow, Endpoint: o.Endpoint.Name, Tick: o.TickKey, Attempt: o.Attempt, Ticks: len(outcomes),
			Outcome: o.Outcome, Bad: o.Outcome != finish.Succeeded,
		}
		if o.Status != nil {
			f.Status = int(*o.Status)
		}
		rs.d.finish.Traces.Record("push", trace.Read(o.Tick.Trace), trace.Context{}, began, f)
	}
}

// answered returns what is shown of a request that has ended.
func answered(o outcome, started time.Time) Answered {
	now := time.Now()
	return Answered{At: now.UTC().Truncate(time.Millisecond), TickID: o.id, Status: o.Status, TookMS: now.Sub(started).Milliseconds(), Error: o.Err}
}

// putOff holds a batch that was not sent because of a failure of ours.
func (rs *requester) putOff(batch []*Delivery, now time.Time, cause error) {
	wait := rs.failing.wait(now)
	if rs.d.log.Due("push", now) {
		rs.d.log.Warn("pushes are not sent, and their ticks wait", "tenant", batch[0].Tenant, "endpoint", batch[0].Endpoint.Name, "wait", wait, "error", cause)
	}
	rs.d.results.add(everyOne(batch, func(o *outcome) { o.held = now.Add(wait + rand.N(wait)) }))
}

// setAside returns the deliveries that have a timing, with their timings. It holds those whose timing a newer program wrote, because
// that program can send them, and ends the others as failed.
func (rs *requester) setAside(batch []*Delivery, timings []*calendar.Timing, newer []bool) ([]*Delivery, []*calendar.Timing) {
	if !slices.Contains(timings, nil) {
		return batch, timings
	}
	var sound, later, broken []*Delivery
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
		rs.d.results.add(everyOne(later, func(o *outcome) { o.held = time.Now().Add(record.NewerWait) }))
	}
	if len(broken) > 0 {
		rs.d.results.add(everyOne(broken, func(o *outcome) {
			o.Outcome, o.Final, o.Unsent, o.Err = finish.Failed, true, true, new("the spec of the schedule's version cannot be computed")
		}))
	}
	return sound, slices.DeleteFunc(timings, func(t *calendar.Timing) bool { return t == nil })
}

func everyOne(batch []*Delivery, fill func(*outcome)) []outcome {
	outcomes := make([]outcome, len(batch))
	for i, one := range batch {
		outcomes[i].Delivery = one
		outcomes[i].TickKey, outcomes[i].Attempt = one.Tick.RowKey(), one.Tick.Attempt
		fill(&outcomes[i])
	}
	return outcomes
}

func (rs *requester) request(ctx context.Context, batch []*Delivery, timings []*calendar.Timing, now time.Time) ([]outcome, error) {
	e := batch[0].Endpoint
	sent := rs.envelope(batch, timings)
	timeout := LongestAnswer
	for _, one := range batch {
		timeout = min(timeout, one.Timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := rs.post(ctx, e, sent, now)
	if err != nil {
		return nil, err
	}
	return judge(batch, r, now), nil
}

// Response is the answer of an endpoint: its status, and the first bytes of the body.
type Response struct {
	status int
	body   []byte
	Wait   time.Duration // what Retry-After asks for, if the status is 429 or 503
}

// accepted reports whether the endpoint accepted the ticks, and sends each result later: 202.
func (r Response) accepted() bool { return r.status == http.StatusAccepted }

// Gone reports whether the endpoint wants no more requests: 410.
func (r Response) Gone() bool { return r.status == http.StatusGone }

// Good reports whether the status is one of success: 2xx.
func (r Response) Good() bool { return r.status/100 == 2 }

// envelope is the content of a request: its id, its body, and the trace that it continues, if it is of ticks.
type envelope struct {
	id    string
	body  []byte
	trace trace.Context
}

// post makes one signed request, and returns the response.
func (rs *requester) post(ctx context.Context, e *Target, m envelope, at time.Time) (r Response, err error) {
	signature, err := sign(e.Secrets, m.id, at, m.body)
	if sabotage.UnsignedBody.On() {
		signature, err = sign(e.Secrets, m.id, at, nil)
	}
	if err != nil {
		return r, &ownError{err}
	}
	ctx, exchange := watched(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(m.body))
	if err != nil {
		return r, errors.New("the URL of the endpoint cannot be used")
	}
	for name, value := range e.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "carillon")
	req.Header.Set("Webhook-Id", m.id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("Webhook-Signature", signature)
	if m.trace.Valid() {
		req.Header.Set("Traceparent", m.trace.String())
	}
	resp, err := rs.client.do(req, exchange)
	if err != nil {
		return r, requestError(err)
	}
	defer resp.Body.Close()
	r.status = resp.StatusCode
	if r.body, err = io.ReadAll(io.LimitReader(resp.Body, answerRead)); err != nil {
		return r, fmt.Errorf("read the answer: %w", requestError(err))
	}
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
		r.Wait = retryAfter(resp.Header.Get("Retry-After"), at)
	}
	return r, nil
}

// errNoSecret is the error of an endpoint without a usable secret. The tenant may see it, and can rotate the secret.
var errNoSecret = errors.New("no secret of the endpoint can be read")

// sign returns the header of Standard Webhooks: a signature with each valid secret.
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

// envelope returns the content of a request: the tick and its id, or a batch of ticks and an id of the batch. A batch continues the trace of
// its first tick.
func (rs *requester) envelope(batch []*Delivery, timings []*calendar.Timing) (sent envelope) {
	single := batch[0].Endpoint.Batch == 1
	if !single {
		sent.body, sent.id = append(sent.body, `{"ticks":[`...), "batch_"+crand.Text()
	}
	for i, one := range batch {
		if i > 0 {
			sent.body = append(sent.body, ',')
		}
		k := one.Tick.RowKey()
		m := rs.d.messages.Complete(message.Message{
			Tick: &one.Tick, Workflow: one.Workflow, WorkflowVersion: one.Version, Expired: one.Expired, MaxAttempts: one.MaxAttempts,
			Timeout: one.Timeout, Token: rs.d.messages.Seal(one.Tenant, k, message.Token{Attempt: one.Tick.Attempt}), Content: one.Content,
		}, timings[i])
		sent.body, one.id = m.AppendJSON(sent.body), m.ID
		if single {
			sent.id = one.id
		}
		if i == 0 {
			sent.trace = m.Context()
		}
	}
	if !single {
		sent.body = append(sent.body, `]}`...)
	}
	return sent
}

// slotQuery limits how long a request waits for the database, because nothing else is sent in its place.
const slotQuery = 2 * time.Second

// timingsOf returns the timings of the deliveries, in their order: see message.Messages.TimingsOf.
func (p *Pusher) timingsOf(ctx context.Context, batch []*Delivery) (timings []*calendar.Timing, newer []bool, err error) {
	if cached := p.cachedTimings(batch); cached != nil {
		return cached, make([]bool, len(batch)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, slotQuery)
	defer cancel()
	ticks := make([]*record.Tick, len(batch))
	for i, one := range batch {
		ticks[i] = &one.Tick
	}
	return p.messages.TimingsOf(ctx, p.pool, batch[0].Tenant, ticks)
}

// cachedTimings returns the timings of the deliveries if all are cached, else nil.
func (p *Pusher) cachedTimings(batch []*Delivery) []*calendar.Timing {
	timings := make([]*calendar.Timing, len(batch))
	for i, one := range batch {
		if one.Tick.CohortID == nil {
			return nil
		}
		if timings[i] = p.messages.Timings.Kept(*one.Tick.CohortID); timings[i] == nil {
			return nil
		}
	}
	return timings
}

// judge returns what a response means for each delivery.
func judge(batch []*Delivery, r Response, started time.Time) []outcome {
	status := int32(r.status)
	if !r.Good() {
		return everyOne(batch, func(o *outcome) {
			o.Outcome, o.Status, o.RetryAfter = finish.Failed, &status, r.Wait
			o.Err = finish.ErrorText(record.AnswerText(status, bytes.TrimSpace(r.body)))
			o.gone = r.Gone()
		})
	}
	if batch[0].Endpoint.Batch > 1 && len(bytes.TrimSpace(r.body)) > 0 {
		return judgeEach(batch, r.body, status, started)
	}
	return everyOne(batch, func(o *outcome) {
		o.Outcome, o.Status = finish.Succeeded, &status
		if r.accepted() {
			o.awaited = started.Add(o.Delivery.Timeout)
		}
	})
}

// judgeEach reads the answer to a batch. A tick that the answer does not name, or names with an unknown status, has failed.
func judgeEach(batch []*Delivery, answer []byte, status int32, started time.Time) []outcome {
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
		o.Status = &status
		i, named := said[o.Delivery.id]
		switch {
		case err != nil:
			o.Outcome, o.Err = finish.Failed, finish.ErrorText("the answer to the batch is not the JSON it should be: "+err.Error())
		case !named:
			o.Outcome, o.Err = finish.Failed, finish.ErrorText("the answer to the batch does not name the tick")
		case body.Results[i].Status == "succeeded":
			o.Outcome = finish.Succeeded
		case body.Results[i].Status == "running":
			o.Outcome, o.awaited = finish.Succeeded, started.Add(o.Delivery.Timeout)
		default:
			o.Outcome, o.Err = finish.Failed, finish.ErrorText(body.Results[i].Error)
		}
	})
}

// retryAfter reads the header Retry-After (RFC 9110 section 10.2.3): seconds or a date; at most an hour.
func retryAfter(text string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		wait = time.Duration(min(n, 3600)) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return max(0, min(wait, time.Hour))
}
