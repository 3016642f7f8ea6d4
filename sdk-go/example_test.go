package carillon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// Digest is what a tick of daily-digest bears.
type Digest struct {
	Email string `json:"email"`
}

func Example() {
	server := carillontest.New()
	defer server.Close()
	url, token := server.Listen(), carillontest.Token
	ctx, stop := context.WithCancel(context.Background())

	client, err := carillon.New(carillon.Config{URL: url, Token: token})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	s, err := client.Put(ctx, "daily-digest", "user_123", carillon.Params{
		Spec:    carillon.Spec{Timezone: "America/New_York", Cron: []string{"0 8 * * 1-5"}},
		Payload: Digest{Email: "ada@example.com"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("next at", s.NextAt)

	worker := carillon.NewWorker(client, carillon.WorkerConfig{})
	carillon.Handle(worker, "daily-digest", func(ctx context.Context, t carillon.Tick[Digest]) error {
		fmt.Println(t.LocalTime.Format(time.Kitchen), "digest for", t.Payload.Email)
		stop()
		return nil
	})

	server.Advance(24 * time.Hour)

	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// next at 2026-01-05 13:00:00 +0000 UTC
	// 8:00AM digest for ada@example.com
}

func ExampleClient_Put() {
	ctx, client := context.Background(), carillontest.New().Client()

	s, err := client.Put(ctx, "invoice", "customer/42", carillon.Params{
		Spec:     carillon.Spec{Timezone: "Europe/Madrid", Cron: []string{"30 9 1 * *"}},
		Policy:   carillon.Policy{MaxLateness: "6h"},
		Delivery: carillon.Delivery{Queue: "billing", MaxAttempts: 5},
		Payload:  map[string]int{"plan": 3},
		Labels:   map[string]string{"plan": "pro"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Key, "version", s.Version, "next at", s.NextAt.Format(time.RFC3339))

	// Changed by somebody else in between? Then this changes nothing.
	_, err = client.Put(ctx, "invoice", "customer/42", carillon.Params{Spec: s.Spec, IfMatch: s.Version + 1})
	fmt.Println(errors.Is(err, carillon.ErrPrecondition))
	// Output:
	// customer/42 version 1 next at 2026-02-01T08:30:00Z
	// true
}

func ExampleClient_List() {
	ctx, client := context.Background(), carillontest.New().Client()
	for _, key := range []string{"ada", "alan", "grace"} {
		_, err := client.Put(ctx, "daily-digest", key, carillon.Params{Spec: carillon.Spec{Cron: []string{"0 8 * * *"}}})
		if err != nil {
			log.Fatal(err)
		}
	}

	for s, err := range client.List(ctx, carillon.Filter{Workflow: "daily-digest", KeyPrefix: "a"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(s.Key, s.Status)
	}
	// Output:
	// ada active
	// alan active
}

func ExampleClient_Trigger() {
	ctx, client := context.Background(), carillontest.New().Client()
	_, err := client.Put(ctx, "report", "global", carillon.Params{Spec: carillon.Spec{Cron: []string{"0 8 * * *"}}})
	if err != nil {
		log.Fatal(err)
	}

	t, err := client.Trigger(ctx, "report", "global", carillon.TriggerParams{Payload: "now, please"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Cause, t.State)

	for t, err := range client.Ticks(ctx, "report", "global", carillon.TickFilter{}) {
		fmt.Println(t.Cause, err)
	}
	// Output:
	// manual scheduled
	// manual <nil>
}

func ExampleHandle() {
	server := carillontest.New()
	client := server.Client()
	ctx, stop := context.WithCancel(context.Background())
	_, err := client.Put(ctx, "charge", "customer_42", carillon.Params{
		Spec: carillon.Spec{Intervals: []carillon.Interval{{Every: "1h"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	server.Advance(time.Hour)

	worker := carillon.NewWorker(client, carillon.WorkerConfig{Concurrency: 10, Queues: []string{"default"}})
	carillon.Handle(worker, "charge", func(ctx context.Context, t carillon.Tick[json.RawMessage]) error {
		defer stop()
		return carillon.Permanent(errors.New("the card was stolen"))
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}

	for t := range client.Ticks(context.Background(), "charge", "customer_42", carillon.TickFilter{}) {
		fmt.Println(t.State, "after", t.Attempt, "attempt:", t.Error)
	}
	// Output:
	// failed after 1 attempt: the card was stolen
}

func ExampleHandleResult() {
	server := carillontest.New()
	client := server.Client()
	ctx, stop := context.WithCancel(context.Background())
	s, err := client.Put(ctx, "count", "global", carillon.Params{Spec: carillon.Spec{At: []string{"2026-01-05T12:00:00"}}})
	if err != nil {
		log.Fatal(err)
	}
	server.Advance(12 * time.Hour)

	worker := carillon.NewWorker(client, carillon.WorkerConfig{})
	carillon.HandleResult(worker, "count", func(ctx context.Context, t carillon.Tick[json.RawMessage]) (map[string]int, error) {
		defer stop()
		return map[string]int{"rows": 7}, nil
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}

	s, err = client.Get(context.Background(), "count", "global")
	if err != nil {
		log.Fatal(err)
	}
	t, err := client.Tick(context.Background(), s.LastTickID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Status, t.State, string(t.Result))
	// Output:
	// completed succeeded {"rows":7}
}

func ExampleWebhookHandler() {
	done := map[string]bool{} // a table, in a program that is started twice
	hook, err := carillon.WebhookHandler(carillon.WebhookConfig{Secrets: []string{carillontest.Secret}},
		func(ctx context.Context, t carillon.Tick[Digest]) error {
			if done[t.TickID] {
				return nil
			}
			done[t.TickID] = true
			fmt.Println("digest for", t.Payload.Email)
			return nil
		})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /ticks", hook)

	// Carillon sends:
	tick := []byte(`{"tick_id": "tick_1", "workflow": "daily-digest", "key": "user_123", "payload": {"email": "ada@example.com"}}`)
	for range 2 {
		r := carillontest.Request(context.Background(), carillontest.Secret, "tick_1", time.Now(), tick)
		r.URL.Path = "/ticks"
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// digest for ada@example.com
	// 204
	// 204
}
