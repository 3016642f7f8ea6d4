package carillontest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/carillontest"
)

// Sync is the payload of the examples.
type Sync struct {
	Region string `json:"region"`
}

var quietly = carillon.WorkerConfig{Log: slog.New(slog.DiscardHandler)}

// A program declares its schedules beside their handlers, and syncs them when it starts.
func Example_declare() {
	server := carillontest.New()
	ctx := context.Background()
	app := carillon.NewApp(server.Client(), carillon.AppConfig{Name: "shop", Version: "v7", Worker: quietly})
	cleanup := app.Declare("cleanup", carillon.Global, carillon.Cron("0 3 * * *"))
	app.Declare("sync", carillon.Global, carillon.Cron("0 17 * * 1-5").In("America/New_York"), carillon.Payload(Sync{Region: "us"}), carillon.Delivery{Queue: "slow"})

	for range 2 {
		report, err := app.Sync(ctx, carillon.PauseUnlisted)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(report.Inserted, "inserted,", report.Unchanged, "unchanged;", cleanup.Key, cleanup.Result, cleanup.ID != "")
	}
	// Output:
	// 2 inserted, 0 unchanged; global inserted true
	// 0 inserted, 2 unchanged; global unchanged true
}

// A handler tells how a tick ends by its error: an ordinary one is tried again, Permanent is not, and Drop is a success without work.
func Example_outcomes() {
	server := carillontest.New()
	client := server.Client()
	ctx, stop := context.WithCancel(context.Background())
	for _, key := range []string{"gone", "stolen"} {
		_, err := client.Schedules.Put(ctx, "charge", key, carillon.Params{Spec: carillon.At("2026-01-05T08:00:00")})
		if err != nil {
			log.Fatal(err)
		}
	}
	server.Advance("9h")
	worker := carillon.NewWorker(client, quietly)
	ran := 0
	carillon.Handle(worker, "charge", func(ctx context.Context, t carillon.Tick[json.RawMessage]) error {
		if ran++; ran == 2 {
			defer stop()
		}
		if t.Key == "gone" {
			return carillon.Drop("the customer has left")
		}
		return carillon.Permanent(errors.New("the card was stolen"))
	}, carillon.HandlerConfig{Concurrency: 1})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	for _, key := range []string{"gone", "stolen"} {
		for t := range client.Schedules.Ticks(context.Background(), "charge", key, carillon.TickFilter{}) {
			fmt.Println(key, t.State, t.Error, string(t.Result))
		}
	}
	// Output:
	// gone succeeded  {"dropped":"the customer has left"}
	// stolen failed the card was stolen
}

// Middleware wraps every handler, here to log how long it takes.
func Example_middleware() {
	server := carillontest.New()
	ctx, stop := context.WithCancel(context.Background())
	_, err := server.Client().Schedules.Put(ctx, "report", carillon.Global, carillon.Params{Spec: carillon.At("2026-01-05T08:00:00")})
	if err != nil {
		log.Fatal(err)
	}
	server.Advance("9h")
	worker := carillon.NewWorker(server.Client(), quietly)
	worker.Use(func(next carillon.Handler) carillon.Handler {
		return func(ctx context.Context, t carillon.Tick[json.RawMessage]) (any, error) {
			began := time.Now()
			result, err := next(ctx, t)
			fmt.Println(t.Workflow, "took less than a minute:", time.Since(began) < time.Minute, err)
			return result, err
		}
	})
	carillon.Handle(worker, "report", func(ctx context.Context, t carillon.Tick[json.RawMessage]) error {
		stop()
		return nil
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// report took less than a minute: true <nil>
}

// tracer stands for a tracing library. With OpenTelemetry, both methods pass the text to propagation.TraceContext in a MapCarrier.
type tracer struct{}

type spanKey struct{}

func (tracer) Extract(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, spanKey{}, traceparent)
}

func (tracer) Inject(ctx context.Context) string {
	traceparent, _ := ctx.Value(spanKey{}).(string)
	return traceparent
}

// A Propagator continues the trace of a tick in its handler, and the trace of a call in the server. It needs no import of a tracing library.
func Example_propagator() {
	var p carillon.Propagator = tracer{}
	ctx := p.Extract(context.Background(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01") // as a worker does before a handler
	fmt.Println(p.Inject(ctx))                                                                        // as the client does before a request
	// Output:
	// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
}
