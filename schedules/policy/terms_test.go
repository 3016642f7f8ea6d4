package policy_test

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/schedules/policy"
)

func TestTermsOfAWorkflow(t *testing.T) {
	t.Parallel()
	want := policy.Terms{
		Overlap: "skip", Missed: "last", OnExpired: "skip", Queue: "default", MaxLateness: 24 * time.Hour, Timeout: time.Minute, Priority: 2, MaxAttempts: 10,
	}
	for _, stored := range []string{"", "{}", `{"policy":{},"delivery":{}}`} {
		if got, err := policy.OfWorkflow([]byte(stored)); err != nil || got != want {
			t.Errorf("%q: got %+v %v", stored, got, err)
		}
	}
	want.Overlap, want.Timeout, want.PauseAfterFailures = "allow_all", 90*time.Second, 3
	stored := `{"policy":{"overlap":"allow_all","pause_after_failures":3},"delivery":{"timeout":"90s"}}`
	if got, err := policy.OfWorkflow([]byte(stored)); err != nil || got != want {
		t.Errorf("got %+v %v", got, err)
	}
	if _, err := policy.OfWorkflow([]byte(`{"policy":{"max_lateness":"x"}}`)); err == nil {
		t.Error("defaults that cannot be are read")
	}
}

// Each term is the schedule's own, else its workflow's, else the built-in one, whatever the others are.
func TestTermsAreInherited(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var own, flow policy.Stored
		var d policy.Defaults
		want := policy.BuiltIn()
		d.Policy, d.Delivery = &policy.Policy{}, &policy.Delivery{Retention: &policy.Retention{}}
		text := func(name string, mine, its **string, shown, effective *string, values ...string) {
			if rapid.Bool().Draw(t, name+" of the workflow") {
				*its = new(rapid.SampledFrom(values).Draw(t, name))
				*shown, *effective = **its, **its
			}
			if rapid.Bool().Draw(t, name+" of the schedule") {
				*mine = new(rapid.SampledFrom(values).Draw(t, name))
				*effective = **mine
			}
		}
		length := func(name string, mine, its **int32, shown *string, effective *time.Duration) {
			draw := func() *int32 { return new(rapid.Int32Range(1, 20).Draw(t, name) * 3600) }
			if rapid.Bool().Draw(t, name+" of the workflow") {
				*its = draw()
				*effective = time.Duration(**its) * time.Second
				*shown = policy.FormatDuration(*effective)
			}
			if rapid.Bool().Draw(t, name+" of the schedule") {
				*mine = draw()
				*effective = time.Duration(**mine) * time.Second
			}
		}
		text("overlap", &own.Overlap, &flow.Overlap, &d.Policy.Overlap, &want.Overlap, "skip", "buffer_all", "allow_all")
		text("missed", &own.Missed, &flow.Missed, &d.Policy.Missed, &want.Missed, "last", "all", "none")
		text("on_expired", &own.OnExpired, &flow.OnExpired, &d.Policy.OnExpired, &want.OnExpired, "skip", "deliver")
		text("queue", &own.Queue, &flow.Queue, &d.Delivery.Queue, &want.Queue, "a", "b")
		length("max_lateness", &own.MaxLateness, &flow.MaxLateness, &d.Policy.MaxLateness, &want.MaxLateness)
		length("timeout", &own.Timeout, &flow.Timeout, &d.Delivery.Timeout, &want.Timeout)
		length("succeeded", &own.KeepSucceeded, &flow.KeepSucceeded, &d.Delivery.Retention.Succeeded, &want.KeepSucceeded)
		length("failed", &own.KeepFailed, &flow.KeepFailed, &d.Delivery.Retention.Failed, &want.KeepFailed)
		if rapid.Bool().Draw(t, "pause") {
			d.Policy.PauseAfterFailures, want.PauseAfterFailures = new(7), 7
		}
		if rapid.Bool().Draw(t, "no pause") {
			own.PauseAfterFailures, want.PauseAfterFailures = new(int32(0)), 0
		}
		if rapid.Bool().Draw(t, "priority") {
			d.Delivery.Priority, want.Priority = new(1), 1
		}
		if rapid.Bool().Draw(t, "attempts") {
			own.MaxAttempts, want.MaxAttempts = new(int16(3)), 3
		}
		stored, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := policy.Resolve(own, stored); err != nil || got != want {
			t.Fatalf("%+v over %s: got %+v %v, want %+v", own, stored, got, err, want)
		}
	})
}
