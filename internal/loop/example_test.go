package loop_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/carillonhq/carillon/internal/loop"
)

// The first run begins at once. The loop ends with its context.
func ExampleEvery() {
	ctx, stop := context.WithCancel(context.Background())
	runs := 0
	loop.Every(ctx, slog.Default(), time.Millisecond, "count", func(context.Context) error {
		if runs++; runs == 3 {
			stop()
		}
		return nil
	})
	fmt.Println(runs)
	// Output: 3
}

// A log line about one subject appears at most once a minute.
func ExampleRarely() {
	var rarely loop.Rarely
	now := time.Now()
	fmt.Println(rarely.Due("disk", now), rarely.Due("disk", now.Add(time.Second)), rarely.Due("network", now))
	fmt.Println(rarely.Due("disk", now.Add(time.Minute)))
	// Output:
	// true false true
	// true
}
