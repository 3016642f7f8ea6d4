package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/loadtest/chaos"
)

// chaosFlags are what chaos is told beside what every scenario is.
type chaosFlags struct {
	seed   uint64
	length time.Duration
	calm   time.Duration
	faulty int
	bugs   bool
	bug    []string
}

// chaosCommand lets faults happen while clients change schedules, and judges what came of it.
func chaosCommand(o *options, stdout, stderr io.Writer) *cobra.Command {
	var f chaosFlags
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "kill, stop, cut and crash all parts while clients change schedules; then nothing is lost, doubled or early",
		Long: `Runs PostgreSQL, two processes of each part, workers and endpoints of bad habits; has clients change schedules
while faults happen to all of them; heals; and judges what the record, the endpoints and the clients tell with arithmetic of
its own. With --scale 1 there are 20 tenants and 5,000 schedules. A campaign is a seed's: the same faults and
operations in the same order, though not to the microsecond.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.databaseURL != "" {
				return errors.New("chaos crashes its PostgreSQL, and takes none that is given")
			}
			p := newProgress(stderr)
			if f.bugs || len(f.bug) > 0 {
				return hunt(cmd.Context(), *o, f, p, stdout)
			}
			v, err := campaign(cmd.Context(), *o, f, p)
			if err != nil {
				return err
			}
			if o.json {
				err = json.NewEncoder(stdout).Encode(v)
			} else {
				err = printVerdict(stdout, v)
			}
			if err == nil && v.Violations > 0 {
				err = errBroken
			}
			return err
		},
	}
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "which campaign: the faults and operations follow from it")
	cmd.Flags().DurationVar(&f.length, "for", 2*time.Minute, "how long faults happen")
	cmd.Flags().DurationVar(&f.calm, "calm", 2*time.Second, "how long it is about from one fault to the next of a kind")
	cmd.Flags().IntVar(&f.faulty, "faults", 2, "how many faults happen at once; 0: none")
	cmd.Flags().BoolVar(&f.bugs, "mutants", false, "run a campaign with each of the deliberate bugs, which must be caught")
	cmd.Flags().StringSliceVar(&f.bug, "mutant", nil, "run one with this deliberate bug")
	return cmd
}

// campaign builds carillon and runs one campaign.
func campaign(ctx context.Context, o options, f chaosFlags, p *progress) (*chaos.Verdict, error) {
	binary, remove, err := build(ctx, "fault", p)
	if err != nil {
		return nil, err
	}
	defer remove()
	settings := f.settings(o, binary, p)
	settings.Step = p.steps(int(f.length/time.Second), "seconds of faults")
	return chaos.Run(ctx, settings)
}

// hunt builds carillon with its deliberate bugs, and looks for each.
func hunt(ctx context.Context, o options, f chaosFlags, p *progress, stdout io.Writer) error {
	binary, remove, err := build(ctx, "fault,mutant", p)
	if err != nil {
		return err
	}
	defer remove()
	found, err := chaos.Hunt(ctx, f.settings(o, binary, p), f.bug)
	if err != nil {
		return err
	}
	if o.json {
		err = json.NewEncoder(stdout).Encode(found)
	} else {
		for _, one := range found {
			fmt.Fprintln(stdout, one)
		}
	}
	if err == nil && slices.ContainsFunc(found, func(f chaos.Found) bool { return !f.Caught }) {
		err = errBroken
	}
	return err
}

// build compiles carillon into a folder that remove erases.
func build(ctx context.Context, tags string, p *progress) (binary string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "carillon-loadtest-*")
	if err != nil {
		return "", nil, err
	}
	p.say("building carillon")
	if binary, err = chaos.Build(ctx, dir, tags); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return binary, func() { _ = os.RemoveAll(dir) }, nil
}

func (f chaosFlags) settings(o options, binary string, p *progress) chaos.Options {
	return chaos.Options{
		Seed: f.seed, For: f.length, Tenants: max(2, o.scaled(20)), Schedules: max(40, o.scaled(5000)), Pause: time.Second, Calm: f.calm, Faulty: f.faulty,
		Binary: binary, Say: p.say,
		Repeat: fmt.Sprintf("go run ./loadtest chaos --seed %d --for %s --scale %v --calm %s --faults %d", f.seed, f.length, o.scale, f.calm, f.faulty),
	}
}

// printVerdict writes a verdict for people.
func printVerdict(w io.Writer, v *chaos.Verdict) error {
	fmt.Fprintf(w, "chaos, seed %d: %d ticks, %d receipts, %d operations (%d attempts unanswered, %d never known)\n", v.Seed, v.Ticks, v.Receipts, v.Operations, v.Unanswered, v.Doubtful)
	for _, kind := range slices.Sorted(maps.Keys(v.Faults)) {
		fmt.Fprintf(w, "  %-20s %d\n", kind, v.Faults[kind])
	}
	for _, point := range slices.Sorted(maps.Keys(v.Crashes)) {
		fmt.Fprintf(w, "  crashed at %-24s %d\n", point, v.Crashes[point])
	}
	fmt.Fprintf(w, "  drained in %.1f s; %d violations %v\n", v.Drained, v.Violations, v.ByRule)
	for _, e := range v.Examples {
		fmt.Fprintf(w, "%s %s: %s\n", e.Rule, e.Key, e.What)
		for _, line := range e.History {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
	_, err := fmt.Fprintf(w, "again: %s\n", v.Repeat)
	return err
}
