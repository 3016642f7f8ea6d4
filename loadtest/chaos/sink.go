package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// sink serves the endpoints: for each tenant one for each habit. A third-party library checks signatures. The habit applies only to the
// first two attempts of a tick, so that every tick can succeed.
//
//	good    answers
//	slow    answers after a second or so
//	flaky   answers some with 500
//	busy    answers 429 with Retry-After
//	reset   processes the tick and resets the connection
//	later   answers 202, and completes over the API
//	batch   takes twenty at a time, and refuses some of them
//	drip    answers byte by byte
//	gone    answers 410, which disables it; later it is enabled again
type sink struct {
	lab    *Lab
	server *http.Server
	addr   string
	done   chan struct{}
	work   sync.WaitGroup // of completions that come later
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	secrets map[string]*webhooks.Webhook // by path
	links   map[string]*link             // by path; made when its URL is first needed
	clients map[string]*client
}

func openSink(lab *Lab) (*sink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{lab: lab, addr: listener.Addr().String(), done: make(chan struct{}), secrets: map[string]*webhooks.Webhook{}, links: map[string]*link{}, clients: map[string]*client{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.server = &http.Server{Handler: http.HandlerFunc(s.take), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(listener) // it returns when it is closed
	}()
	return s, nil
}

func (s *sink) close() {
	s.cancel()
	for _, k := range s.all() {
		k.proxy.Stop()
	}
	_ = s.server.Close()
	<-s.done
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.http.CloseIdleConnections()
	}
}

// url returns the URL of an endpoint, which leads through a proxy of its own.
func (s *sink) url(tenant, habit string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := "/" + tenant + "/" + habit
	k := s.links[path]
	if k == nil {
		var err error
		if k, err = s.lab.newLink(path, s.addr); err != nil {
			return "", err
		}
		s.links[path] = k
	}
	return "http://" + k.proxy.Listen + path, nil
}

// all returns the links to the endpoints, in order.
func (s *sink) all() (links []*link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(s.links)) {
		links = append(links, s.links[path])
	}
	return links
}

// learn stores the secret in the answer to the creation of an endpoint.
func (s *sink) learn(tenant, habit string, answer []byte) error {
	var e struct {
		Secret string `json:"secret"`
	}
	if err := json.Unmarshal(answer, &e); err != nil {
		return err
	}
	hook, err := webhooks.NewWebhook(e.Secret)
	if err != nil {
		return fmt.Errorf("the secret of endpoint %s: %w", habit, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets["/"+tenant+"/"+habit] = hook
	if s.clients[tenant] == nil {
		s.clients[tenant] = newClient(s.lab, tenant)
	}
	return nil
}

// take handles one request.
func (s *sink) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest) // its sender was killed
		return
	}
	at := time.Now()
	s.mu.Lock()
	hook := s.secrets[r.URL.Path]
	s.mu.Unlock()
	tenant, habit, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if hook == nil {
		s.lab.ledger.complain("a request to " + r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
		return
	}
	signed := hook.Verify(body, r.Header) == nil
	ticks := []tick{{}}
	if habit == "batch" {
		var all struct{ Ticks []tick }
		err = json.Unmarshal(body, &all)
		ticks = all.Ticks
	} else {
		err = json.Unmarshal(body, &ticks[0])
	}
	if err != nil {
		s.lab.ledger.complain(fmt.Sprintf("a body of %s that is not JSON: %.200s", r.URL.Path, body))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.lab.ledger.acting.RLock()
	defer s.lab.ledger.acting.RUnlock()
	receipts := make([]*receipt, len(ticks))
	for i, t := range ticks {
		receipts[i] = &receipt{Tenant: tenant, At: at, Where: "sink", Signed: signed, ID: r.Header.Get(webhooks.HeaderWebhookID), tick: t}
		if habit == "batch" {
			receipts[i].ID = t.TickID // the header has the id of the batch
		}
	}
	s.answer(w, habit, receipts)
	for _, one := range receipts {
		one.Done = time.Now()
		s.lab.ledger.add(one)
	}
}

// answer answers as the habit demands.
func (s *sink) answer(w http.ResponseWriter, habit string, receipts []*receipt) {
	first := receipts[0]
	first.Outcome = taken
	tenant := first.Tenant
	bad := first.Attempt <= 2 && !s.lab.healed.Load()
	switch {
	case habit == "batch":
		s.answerBatch(w, receipts, bad)
	case habit == "slow":
		sleep(s.ctx, time.Duration(500+hashed(first.TickID)%1000)*time.Millisecond)
		w.WriteHeader(http.StatusNoContent)
	case habit == "drip":
		for range 5 {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			sleep(s.ctx, 100*time.Millisecond)
		}
	case habit == "flaky" && bad && hashed(first.TickID)%4 == 0:
		first.Outcome = turnedOff
		w.WriteHeader(http.StatusInternalServerError)
	case habit == "busy" && bad && hashed(first.TickID)%3 == 0:
		first.Outcome = turnedOff
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case habit == "reset" && bad && hashed(first.TickID)%4 == 0:
		first.Outcome = cutOff
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0) // Close then resets the connection
			_ = c.Close()
		}
	case habit == "gone" && bad && hashed(first.TickID)%8 == 0:
		first.Outcome = turnedOff
		w.WriteHeader(http.StatusGone)
		s.work.Go(func() { s.enable(tenant, habit) })
	case habit == "later":
		w.WriteHeader(http.StatusAccepted)
		first.Outcome = letLie // until complete changes it
		later := *first
		s.work.Go(func() { s.complete(later) })
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *sink) answerBatch(w http.ResponseWriter, receipts []*receipt, bad bool) {
	var b bytes.Buffer
	b.WriteString(`{"results":[`)
	for i, r := range receipts {
		if i > 0 {
			b.WriteByte(',')
		}
		r.Outcome = taken
		status := "succeeded"
		if bad && hashed(r.TickID)%5 == 0 && r.Attempt <= 2 {
			r.Outcome, status = turnedOff, "failed"
		}
		fmt.Fprintf(&b, `{"tick_id":%q,"status":%q,"error":"no"}`, r.TickID, status)
	}
	b.WriteString(`]}`)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b.Bytes())
}

// enable enables an endpoint that answered 410, some time later.
func (s *sink) enable(tenant, habit string) {
	if !sleep(s.ctx, 3*time.Second) {
		return
	}
	s.mu.Lock()
	c := s.clients[tenant]
	s.mu.Unlock()
	s.reenable(s.ctx, c, habit)
}

func (s *sink) reenable(ctx context.Context, c *client, habit string) {
	at, err := s.url(c.tenant, habit) // the link already exists
	if err != nil {
		return
	}
	a, _, err := c.until(ctx, http.MethodPut, "/v1/endpoints/"+habit, fmt.Appendf(nil, `{"url":%q,"state":"enabled"}`, at))
	if err == nil && !a.ok() {
		s.lab.ledger.complain(fmt.Sprintf("I10 an endpoint cannot be enabled again: %d %.200s", a.status, a.body))
	}
}

// complete completes an accepted tick over the API, some time later.
func (s *sink) complete(r receipt) {
	if !sleep(s.ctx, time.Duration(100+hashed(r.TickID)%1500)*time.Millisecond) {
		return
	}
	s.mu.Lock()
	c := s.clients[r.Tenant]
	s.mu.Unlock()
	s.lab.ledger.acting.RLock()
	defer s.lab.ledger.acting.RUnlock()
	a, tries, err := c.until(s.ctx, http.MethodPost, "/v1/ticks/"+r.TickID+"/complete", fmt.Appendf(nil, `{"lease_token":%q}`, r.LeaseToken))
	if err != nil {
		return
	}
	r.At, r.Done = time.Now(), time.Now()
	switch {
	case a.ok():
		r.Outcome = taken
	case tries > 1: // an earlier attempt with a lost answer may have completed it
		r.Outcome = cutOff
	default:
		return
	}
	s.lab.ledger.add(&r)
}

// hashed returns a number that depends only on the text.
func hashed(text string) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, text)
	return int(h.Sum32() & 0x7fffffff)
}

var errUnhandled = errors.New("turned down")
