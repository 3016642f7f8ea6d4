package policy_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/schedules/policy"
)

func TestDurationsAreRead(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "5m": 5 * time.Minute, "1h30m": 90 * time.Minute, "1d": day, "1w": 7 * day, "0s": 0,
		"1w1d1h1m1s": 8*day + time.Hour + time.Minute + time.Second, "999999999s": 999999999 * time.Second,
	} {
		if got, ok := policy.ParseDuration(text); !ok || got != want {
			t.Errorf("%s: got %s %t, want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "s", "5", "5x", "-5s", "+5s", "1.5h", "5 m", "1m1h", "1h1h", "1H", "1ms", "1000000000s", "999999999w", "5s ", "٣s"} {
		if got, ok := policy.ParseDuration(text); ok {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}

func TestDurationsAreWrittenAsTheyAreSaid(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0s", "1s", "1m", "1m30s", "5m", "1h", "1h30m", "24h", "47h59m59s", "2d", "30d", "366d", "2d1h"} {
		d, ok := policy.ParseDuration(text)
		if got := policy.FormatDuration(d); !ok || got != text {
			t.Errorf("%s is written %s", text, got)
		}
	}
	if got := policy.FormatDuration(-time.Hour); got != "0s" {
		t.Errorf("a negative one is written %s", got)
	}
}

func TestDurationsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, 400_000_000).Draw(t, "seconds")) * time.Second
		if got, ok := policy.ParseDuration(policy.FormatDuration(d)); !ok || got != d {
			t.Fatalf("%s is written %s and read %s", d, policy.FormatDuration(d), got)
		}
	})
}
