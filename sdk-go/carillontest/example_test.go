package carillontest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// Digest is the payload of a tick of daily-digest.
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

	s, err := client.Schedules.Put(ctx, "daily-digest", "user_123", carillon.Params{
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

	server.AdvanceBy(24 * time.Hour)

	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// next at 2026-01-05 13:00:00 +0000 UTC
	// 8:00AM digest for ada@example.com
}

func Example_put() {
	ctx, client := context.Background(), carillontest.New().Client()

	s, err := client.Schedules.Put(ctx, "invoice", "customer/42", carillon.Params{
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
	_, err = client.Schedules.Put(ctx, "invoice", "customer/42", carillon.Params{Spec: s.Spec, IfMatch: s.Version + 1})
	fmt.Println(errors.Is(err, carillon.ErrPrecondition))
	// Output:
	// customer/42 version 1 next at 2026-02-01T08:30:00Z
	// true
}

func Example_list() {
	ctx, client := context.Background(), carillontest.New().Client()
	for _, key := range []string{"ada", "alan", "grace"} {
		_, err := client.Schedules.Put(ctx, "daily-digest", key, carillon.Params{Spec: carillon.Spec{Cron: []string{"0 8 * * *"}}})
		if err != nil {
			log.Fatal(err)
		}
	}

	for s, err := range client.Schedules.List(ctx, carillon.Filter{Workflow: "daily-digest", KeyPrefix: "a"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(s.Key, s.Status)
	}
	// Output:
	// ada active
	// alan active
}

func Example_trigger() {
	ctx, client := context.Background(), carillontest.New().Client()
	_, err := client.Schedules.Put(ctx, "report", "global", carillon.Params{Spec: carillon.Spec{Cron: []string{"0 8 * * *"}}})
	if err != nil {
		log.Fatal(err)
	}

	t, err := client.Schedules.Trigger(ctx, "report", "global", carillon.TriggerParams{Payload: "now, please"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Cause, t.State)

	for t, err := range client.Schedules.Ticks(ctx, "report", "global", carillon.TickFilter{}) {
		fmt.Println(t.Cause, err)
	}
	// Output:
	// manual running
	// manual <nil>
}

func Example_handle() {
	server := carillontest.New()
	client := server.Client()
	ctx, stop := context.WithCancel(context.Background())
	_, err := client.Schedules.Put(ctx, "charge", "customer_42", carillon.Params{
		Spec: carillon.Spec{Intervals: []carillon.Interval{{Every: "1h"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	server.AdvanceBy(time.Hour)

	worker := carillon.NewWorker(client, carillon.WorkerConfig{Concurrency: 10, Queues: []string{"default"}})
	carillon.Handle(worker, "charge", func(ctx context.Context, t carillon.Tick[json.RawMessage]) error {
		defer stop()
		return carillon.Permanent(errors.New("the card was stolen"))
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}

	for t := range client.Schedules.Ticks(context.Background(), "charge", "customer_42", carillon.TickFilter{}) {
		fmt.Println(t.State, "after", t.Attempt, "attempt:", t.Error)
	}
	// Output:
	// failed after 1 attempt: the card was stolen
}

func Example_handleResult() {
	server := carillontest.New()
	client := server.Client()
	ctx, stop := context.WithCancel(context.Background())
	s, err := client.Schedules.Put(ctx, "count", "global", carillon.Params{Spec: carillon.Spec{At: []string{"2026-01-05T12:00:00"}}})
	if err != nil {
		log.Fatal(err)
	}
	server.AdvanceBy(12 * time.Hour)

	worker := carillon.NewWorker(client, carillon.WorkerConfig{})
	carillon.HandleResult(worker, "count", func(ctx context.Context, t carillon.Tick[json.RawMessage]) (map[string]int, error) {
		defer stop()
		return map[string]int{"rows": 7}, nil
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}

	s, err = client.Schedules.Get(context.Background(), "count", "global")
	if err != nil {
		log.Fatal(err)
	}
	t, err := client.Ticks.Get(context.Background(), s.LastTickID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Status, t.State, string(t.Result))
	// Output:
	// completed succeeded {"rows":7}
}

func Example_webhook() {
	done := map[string]bool{} // a table, in a program that is started twice
	hook, err := carillon.NewWebhook(carillon.WebhookConfig{Secrets: []string{carillontest.Secret}})
	if err != nil {
		log.Fatal(err)
	}
	carillon.Handle(hook, "daily-digest", func(ctx context.Context, t carillon.Tick[Digest]) error {
		if done[t.TickID] {
			return nil
		}
		done[t.TickID] = true
		fmt.Println("digest for", t.Payload.Email)
		return nil
	})
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

func Example_putAll() {
	server := carillontest.New()
	defer server.Close()
	client := server.Client()

	var lines []carillon.BulkLine
	for _, user := range []string{"ada", "bob", "ada"} {
		p := carillon.Params{Spec: carillon.Cron("0 8 * * *").In("Europe/Berlin")}
		lines = append(lines, carillon.BulkLine{Workflow: "daily-digest", Key: user, Params: p})
	}
	sum, err := client.Schedules.PutAll(context.Background(), slices.Values(lines), carillon.BulkParams{
		Each: func(r carillon.BulkResult) { fmt.Println(r.Line, r.Key, r.Result) },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", sum.BulkSummary)
	// Output:
	// 1 ada inserted
	// 2 bob inserted
	// 3 ada unchanged
	// {Inserted:2 Updated:0 Unchanged:1 Duplicates:0 Errors:0}
}

func Example_preview() {
	client := carillontest.New().Client()

	weekday := carillon.Cron("0 8 * * 1-5").In("America/New_York")
	preview, err := client.Schedules.Preview(context.Background(), weekday, carillon.PreviewParams{Count: 2})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range preview.Ticks {
		fmt.Println(t.LocalTime.Format("Mon 15:04 -07:00"), t.DST)
	}
	// Output:
	// Mon 08:00 -05:00 none
	// Tue 08:00 -05:00 none
}

func Example_subjects() {
	ctx, client := context.Background(), carillontest.New().Client()

	_, err := client.Subjects.Put(ctx, "ada", carillon.SubjectParams{Timezone: "Asia/Kathmandu"})
	if err != nil {
		log.Fatal(err)
	}
	s, err := client.Schedules.Put(ctx, "reminder", "ada/breakfast", carillon.Params{
		Subject: "ada",
		Spec:    carillon.Cron("0 8 * * *").In(carillon.SubjectZone),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("next at", s.NextLocal.Format("15:04 -07:00"))
	// Output:
	// next at 08:00 +05:45
}

func Example_errors() {
	ctx, client := context.Background(), carillontest.New().Client()

	_, err := client.Schedules.Put(ctx, "report", "", carillon.Params{Spec: carillon.Cron("0 8 * * *").In("Mars/Olympus")})
	if errors.Is(err, carillon.CodeUnknownTimezone) {
		var refused *carillon.Error
		errors.As(err, &refused)
		fmt.Println(refused.Fields[0].Pointer, refused.Code)
	}
	// Output:
	// /spec/timezone unknown_timezone
}
