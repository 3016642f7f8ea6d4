package loop_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonhq/carillon/internal/loop"
)

func TestWorkRunsAtOnceAndThenAtItsPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		began, ran := time.Now(), []time.Duration{}
		ctx, cancel := context.WithCancel(t.Context())
		period := time.Second
		loop.Paced(ctx, slog.New(slog.NewTextHandler(&log, nil)), func() time.Duration { return period }, "count", func(context.Context) error {
			ran = append(ran, time.Since(began))
			switch len(ran) {
			case 2:
				period = time.Minute
				return errors.New("it is broken")
			case 4:
				cancel()
				return errors.New("it has ended")
			}
			return nil
		})
		want := []time.Duration{0, time.Second, time.Minute + time.Second, 2*time.Minute + time.Second}
		for i := range want {
			if len(ran) != len(want) || ran[i] != want[i] {
				t.Fatalf("got %v, want %v", ran, want)
			}
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `msg="cannot count" error="it is broken"`) {
			t.Errorf("got %s", text)
		}
	})
}
