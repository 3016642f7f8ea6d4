package servertest

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// The public library of Standard Webhooks and our verifier accept and refuse the same requests: those that either of them signed, and
// changed copies of them.
func TestVerifierAgreesWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.UintN(256))
		}
		return b
	}
	for i := range 300 {
		secret := "whsec_" + base64.StdEncoding.EncodeToString(text(24+random.IntN(41)))
		theirs, err := standard.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := carillon.NewVerifier([]string{secret}, 5*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		id, body, now := fmt.Sprintf("tick_%d", random.Uint32()), text(random.IntN(5000)), time.Now()
		at := now.Add(time.Duration(random.IntN(900)-450) * time.Second)
		header := carillontest.Request(t.Context(), secret, id, at, body).Header // signed by us
		if i%2 == 0 {
			signature, err := theirs.Sign(id, at, body)
			if err != nil {
				t.Fatal(err)
			}
			header.Set("webhook-signature", signature)
		}
		change := random.IntN(7)
		switch change {
		case 1:
			header.Set("webhook-id", id+"x")
		case 2:
			header.Set("webhook-timestamp", fmt.Sprint(at.Unix()+1))
		case 3:
			body = append(body, '!')
		case 4:
			header.Set("webhook-signature", "v1,AAAA "+header.Get("webhook-signature"))
		case 5:
			header.Set("webhook-signature", "v2"+header.Get("webhook-signature")[2:])
		case 6:
			header.Del("webhook-signature")
		}
		if off := now.Sub(at).Abs(); off > 299*time.Second && off < 302*time.Second {
			continue // which side of the tolerance it is on depends on the moment of the check
		}
		theirErr, ourErr := theirs.Verify(body, header), ours.Verify(header, body, now)
		if (theirErr == nil) != (ourErr == nil) {
			t.Errorf("change %d of a webhook of %s: the library says %v, we say %v", change, at.Sub(now), theirErr, ourErr)
		}
	}
}

// pushed makes workflow w pushed to an endpoint on this machine, whose requests h answers, and returns the endpoint's secret.
func pushed(t *testing.T, c *carillon.Client, batch int, h http.Handler, events ...string) (secret string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	e := must[carillon.Endpoint](t)(c.Endpoints.Put(t.Context(), "hook", carillon.EndpointParams{URL: server.URL, Batch: batch, Events: events}))
	must[carillon.Workflow](t)(c.Workflows.Put(t.Context(), "w", carillon.WorkflowParams{Endpoint: "hook"}))
	return e.Secret
}

// later is a handler that is known only after the endpoint has its secret.
type later struct {
	sync.Mutex
	http.Handler
}

func (l *later) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.Lock()
	h := l.Handler
	l.Unlock()
	h.ServeHTTP(w, r)
}

func (l *later) set(h http.Handler) {
	l.Lock()
	defer l.Unlock()
	l.Handler = h
}

// The public library and our verifier accept each push of the server, of one tick and of a batch. A tick that is answered with Later ends
// by its lease token, and events come too.
func TestWebhookTakesWhatTheServerPushes(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 10} {
		ctx, c := t.Context(), client(t)
		var entry later
		secret := pushed(t, c, batch, &entry, "tick.failed")
		library, err := standard.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		events := make(chan carillon.Event, 100)
		held := make(chan anyTick, 1)
		app := carillon.NewApp(c)
		carillon.Handle(app, "w", func(_ context.Context, tick anyTick) error {
			switch tick.Key {
			case "later":
				held <- tick
				return carillon.Later
			case "bad":
				return carillon.Permanent(io.ErrUnexpectedEOF)
			}
			return nil
		})
		hook, err := app.Webhook(carillon.WebhookConfig{Secrets: []string{secret}, Log: quiet, OnEvent: func(_ context.Context, e carillon.Event) error {
			events <- e
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		entry.set(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			if err := library.Verify(body, r.Header); err != nil {
				t.Errorf("the public library: %v", err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			hook.ServeHTTP(w, r)
		}))
		fired := map[string]string{}
		for _, key := range []string{"good", "later", "bad"} {
			must[carillon.Schedule](t)(c.Schedules.Put(ctx, "w", key, carillon.Params{Spec: daily(3), Delivery: carillon.Delivery{MaxAttempts: 1}}))
			fired[key] = must[carillon.TickRecord](t)(c.Schedules.Trigger(ctx, "w", key, carillon.TriggerParams{})).TickID
		}
		tick := <-held
		if err := c.Ticks.Complete(ctx, tick.TickID, tick.LeaseToken, map[string]int{"sent": 3}); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{"good": "succeeded", "later": "succeeded", "bad": "failed"} {
			r := until(t, c, fired[key], func(r carillon.TickRecord) bool { return r.EndedAt != nil })
			if r.State != want || key == "later" && string(r.Result) != `{"sent":3}` {
				t.Errorf("batch %d, %s: got %+v", batch, key, r)
			}
		}
		select {
		case e := <-events:
			if e.Type != "tick.failed" || e.Cause != "w" {
				t.Errorf("got %+v", e)
			}
		case <-time.After(time.Minute):
			t.Error("no event came")
		}
	}
}

// until reads a tick until it is as wanted.
func until(t *testing.T, c *carillon.Client, id string, yes func(carillon.TickRecord) bool) carillon.TickRecord {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		r := must[carillon.TickRecord](t)(c.Ticks.Get(t.Context(), id))
		if yes(r) || time.Now().After(deadline) {
			return r
		}
		<-time.After(20 * time.Millisecond)
	}
}
