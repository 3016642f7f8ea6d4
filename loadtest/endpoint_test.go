package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func TestWebhookTakesOnlyWhatIsSigned(t *testing.T) {
	t.Parallel()
	verifier, err := webhooks.NewWebhook("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger(func() {})
	handler := webhook(verifier, l)
	const body = `{"tick_id": "tick_1", "workflow": "w", "key": "k", "timestamp": "2026-11-21T12:00:00Z"}`
	send := func(id, sent string) int {
		now := time.Now()
		signature, err := verifier.Sign(id, now, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/ticks", strings.NewReader(sent))
		r.Header.Set(webhooks.HeaderWebhookID, id)
		r.Header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
		r.Header.Set(webhooks.HeaderWebhookSignature, signature)
		w := httptest.NewRecorder()
		handler(w, r)
		return w.Code
	}
	if got := send("tick_1", body); got != http.StatusNoContent {
		t.Errorf("got %d", got)
	}
	if got := send("tick_1", body+" "); got != http.StatusUnauthorized {
		t.Errorf("another body: got %d", got)
	}
	if got := send("tick_2", body); got != http.StatusUnauthorized {
		t.Errorf("another id: got %d", got)
	}
	if l.filled() != 1 || l.badSigns != 2 {
		t.Errorf("got %d deliveries, %d refused", l.filled(), l.badSigns)
	}
}
