package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
	"github.com/carillonhq/carillon/cmd/carillon/cli/progress"
)

func (c commander) operationWait() *cobra.Command {
	return c.command(command.Spec{
		Use:   "wait OPERATION",
		Short: "Wait until an operation ends, and show its progress",
		Long: `Waits until an operation ends. A terminal shows how much is done, how fast, and how long the
rest takes. The command exits with 0 if the operation succeeded, with 1 if it failed or was
cancelled, and with 7 if --for is over. Ctrl-C stops the wait, not the operation.`,
		Example: `  carillon operation wait op_0a1b2c3d4e5f6g7h8i9jklmnop
  carillon operation wait op_0a1b2c3d4e5f6g7h8i9jklmnop --for 10m --jq .counts`,
		Flags: func(f *pflag.FlagSet) { f.Duration("for", 0, "stop waiting after this; 0s is never") },
		Run: func(ctx context.Context, s *command.Session) error {
			longest, err := s.Command.Flags().GetDuration("for")
			if err != nil || longest < 0 {
				return exit.Misused("--for is 0s or more")
			}
			return waitFor(ctx, s, s.Args[0], longest)
		},
	})
}

// The pauses between two looks at an operation: short work is seen to end at once, and long work is not asked about often.
const (
	shortestLook = 100 * time.Millisecond
	longestLook  = 2 * time.Second
)

// waitFor waits until an operation ends, prints it, and returns an error if it did not succeed.
func waitFor(ctx context.Context, s *command.Session, id string, longest time.Duration) error {
	var bar *progress.Bar
	defer func() { bar.Close() }()
	began := s.Env.Now()
	for pause := shortestLook; ; pause = min(pause*3/2, longestLook) {
		raw, o, err := fetch(ctx, s, api.Request{Path: api.Path("v1", "operations", id)})
		if err != nil {
			return err
		}
		if state := o.At("state").String(); state != "pending" && state != "running" {
			bar.Close()
			bar = nil
			return ended(ctx, s, raw, state)
		}
		done, total := number(o.At("done")), number(o.At("total"))
		if o.At("total").Null() {
			total = -1
		}
		if bar == nil {
			bar = s.Bar(doing(o), "schedules", total)
		}
		bar.SetOf(done, total, doing(o))
		if waited := s.Env.Now().Sub(began); longest > 0 && waited >= longest {
			return &exit.Error{Code: exit.TimedOut, Err: fmt.Errorf("%s still runs after %s: %s done", id, longest, draw.Count(done)), Remedy: "carillon operation wait " + id}
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// ended prints an operation that has ended.
func ended(ctx context.Context, s *command.Session, raw json.RawMessage, state string) error {
	if err := s.Out.One(ctx, raw, operationCard); err != nil || state == "succeeded" {
		return err
	}
	return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the operation %s", state)}
}

// doing says what an operation does: the kinds that it has counted, such as paused, or else its own kind.
func doing(o output.Object) string {
	counts, _ := o.At("counts").Value().(map[string]any)
	var kinds []string
	for kind := range counts {
		kinds = append(kinds, kind)
	}
	if len(kinds) == 0 {
		return o.At("kind").String()
	}
	slices.SortFunc(kinds, func(a, b string) int {
		if x, y := number(o.At("counts."+a)), number(o.At("counts."+b)); x != y {
			return int(min(max(y-x, -1), 1))
		}
		return strings.Compare(a, b)
	})
	return kinds[0]
}

// sleep waits, or returns context.Canceled when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Canceled
	}
}
