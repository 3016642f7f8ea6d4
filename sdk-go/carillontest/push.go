package carillontest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

// Secret is the signing secret of [Server.Push].
const Secret = "whsec_Y2FyaWxsb250ZXN0IGhhcyBubyBzZWNyZXRz"

type push struct{ handler http.Handler }

// Push pushes the ticks of a workflow to a webhook's handler from now on, one by one and signed with [Secret].
func (s *Server) Push(workflow string, webhook http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pushes[workflow] = push{webhook}
}

// push delivers one tick and notes the answer.
func (s *Server) push(p push, t *tick) {
	s.mu.Lock()
	s.begin(t, "")
	t.until = time.Now().Add(time.Hour)
	s.leased[t.TickID] = t
	if len(s.leased) == 1 || t.until.Before(s.expires) {
		s.expires = t.until
	}
	content, err := json.Marshal(t.Tick)
	s.mu.Unlock()
	if err != nil {
		panic(err) // a tick is JSON
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, Request(context.Background(), Secret, t.TickID, time.Now(), content))
	f := finish{Outcome: "complete"}
	switch {
	case w.Code == http.StatusAccepted:
		return
	case w.Code > 299:
		f = finish{Outcome: "fail", Error: strings.TrimSpace(w.Body.String())}
		if after := w.Header().Get("Retry-After"); after != "" {
			f.RetryAfter = after + "s"
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leased[t.TickID] == t {
		s.end(t, f, w.Code)
	}
}

// Request returns a webhook as Carillon sends it: a POST of content, signed for id and the time at (Standard Webhooks 1.0). It panics if secret
// is not a webhook's secret.
func Request(ctx context.Context, secret, id string, at time.Time, content []byte) *http.Request {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(fmt.Sprintf("carillontest: %q is not a webhook's secret", secret))
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, stamp, content)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(content))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", stamp)
	r.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return r
}
