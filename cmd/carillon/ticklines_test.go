package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonhq/carillon/dispatch/open"
)

func herd(n int, key string) []open.Fired {
	at := time.Date(2026, 11, 23, 13, 0, 0, 0, time.UTC)
	fired := make([]open.Fired, n)
	for i := range fired {
		fired[i] = open.Fired{Workflow: "digest", Key: key, Timestamp: at, FiredAt: at.Add(143 * time.Millisecond)}
	}
	return fired
}

// shown returns the output for a batch of ticks after a second.
func shown(t *testing.T, f format, fired []open.Fired) string {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		lines := newTickLines(&out, f, false)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			lines.write(ctx)
		}()
		lines.add(fired)
		<-time.After(1500 * time.Millisecond)
		cancel()
		<-done
	})
	return out.String()
}

func TestATickIsALine(t *testing.T) {
	t.Parallel()
	got := strings.Fields(shown(t, "text", herd(1, "user_123")))
	if want := "13:00:00.143 digest user_123 143 ms late"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAHerdIsSummedUp(t *testing.T) {
	t.Parallel()
	got := strings.Split(strings.TrimSpace(shown(t, "text", herd(1000, "k"))), "\n")
	if len(got) != linesPerSecond+1 || strings.TrimSpace(got[linesPerSecond]) != "… and 980 more" {
		t.Errorf("got %d lines, the last %q", len(got), got[len(got)-1])
	}
}

func TestJSONHasEveryTick(t *testing.T) {
	t.Parallel()
	got := strings.Split(strings.TrimSpace(shown(t, "json", herd(100, "a\u202eb"))), "\n")
	var line struct {
		Key      string `json:"key"`
		Lateness int    `json:"lateness_ms"`
	}
	if err := json.Unmarshal([]byte(got[99]), &line); err != nil || len(got) != 100 || line.Key != "a\u202eb" || line.Lateness != 143 {
		t.Errorf("got %d lines, the last %+v, %v", len(got), line, err)
	}
}

func TestAKeyDoesNotMoveTheCursor(t *testing.T) {
	t.Parallel()
	if got := shown(t, "text", herd(1, "a\u202eb")); strings.Contains(got, "\u202e") || !strings.Contains(got, `"a\u202eb"`) {
		t.Errorf("got %q", got)
	}
}
