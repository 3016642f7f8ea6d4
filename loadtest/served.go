package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/tenants"
)

// served is a process of `carillon serve`, with its addresses. It chooses free ports itself: a port that we find free may be another's
// before it listens.
type served struct {
	*process
	Listen  string `json:"listen"`
	Metrics string `json:"metrics"`
}

// serve starts `carillon serve` and waits until it is ready.
func (w *workshop) serve(ctx context.Context, name string, env []string, args ...string) (*served, error) {
	before := int64(0) // bytes of an earlier process of this name
	if log, err := os.Stat(w.file(name + ".log")); err == nil {
		before = log.Size()
	}
	args = append([]string{"serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-format", "json"}, args...)
	p, err := w.start(name, env, args...)
	if err != nil {
		return nil, err
	}
	s := &served{process: p}
	if err := s.ready(ctx, func() bool { return s.readAddresses(before) && answers(ctx, "http://"+s.Listen+"/readyz") }); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// readAddresses reads the addresses from the line that the process logs when it serves, and reports whether there is one. before is the
// length of the log when the process started.
func (s *served) readAddresses(before int64) bool {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text[before:]) {
		if bytes.Contains(line, []byte(`"msg":"serving"`)) {
			return json.Unmarshal(line, s) == nil
		}
	}
	return false
}

// These metrics count the members that a process swept, and the ticks that it handed out.
const (
	sweptMetric     = "carillon_swept_total"
	handedOutMetric = "carillon_ticks_total"
)

// metric returns the sum of a metric of this process over its labels, or 0 if the process does not answer.
func (s *served) metric(ctx context.Context, name string) (sum float64) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Metrics+"/metrics", nil)
	if err != nil {
		return 0
	}
	answer, err := plain.Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, name) {
			n, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			sum += n
		}
	}
	return sum
}

const pairTenant = "pair"

// tenant creates the tenant with wide quotas, and returns a client of it whose requests go through the balancer.
func (w *workshop) tenant(ctx context.Context, env []string, b *balancer) (*carillon.Client, error) {
	platform, err := w.output(ctx, env, "token", "--scope", "platform:admin")
	if err != nil {
		return nil, err
	}
	token, err := w.output(ctx, env, "token", "--tenant", pairTenant)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]any{"name": pairTenant, "quotas": tenants.Wide()})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+b.targets[0]+"/v1/platform/tenants/"+pairTenant, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+platform)
	request.Header.Set("Content-Type", "application/json")
	answer, err := plain.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated && answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 2000))
		return nil, fmt.Errorf("make the tenant: %s: %s", answer.Status, text)
	}
	return carillon.New(carillon.Config{URL: "http://" + b.targets[0], Token: token, HTTPClient: &http.Client{Transport: b}})
}

// balancer sends requests to its targets in turn. After a failure it leaves the target out for a while.
type balancer struct {
	targets []string
	base    *http.Transport

	mu   sync.Mutex
	next int
	down map[string]time.Time
}

const avoidFor = 5 * time.Second

func newBalancer(targets ...string) *balancer {
	return &balancer{targets: targets, base: &http.Transport{MaxIdleConnsPerHost: 100}, down: map[string]time.Time{}}
}

// RoundTrip sends the request to the target whose turn it is.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	target := b.target()
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = target, target
	answer, err := b.base.RoundTrip(r)
	if err != nil && r.Context().Err() == nil {
		b.mu.Lock()
		b.down[target] = time.Now()
		b.mu.Unlock()
	}
	return answer, err
}

// CloseIdleConnections is for the client's Close.
func (b *balancer) CloseIdleConnections() { b.base.CloseIdleConnections() }

func (b *balancer) target() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.targets {
		b.next++
		if t := b.targets[b.next%len(b.targets)]; time.Since(b.down[t]) > avoidFor {
			return t
		}
	}
	return b.targets[b.next%len(b.targets)] // all are down: the request fails at this one
}
