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

// chaosFlags are the flags of chaos, besides those of every scenario.
type chaosFlags struct {
	seeds  []uint
	length time.Duration
	calm   time.Duration
	faulty int
	busy   int
	clocks bool
	disk   bool
	old    string
	bugs   bool
	bug    []string
}

// chaosCommand returns the command chaos. It causes faults while clients change schedules, and then checks the promises.
func chaosCommand(o *options, stdout, stderr io.Writer) *cobra.Command {
	var f chaosFlags
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "kill, stop, cut and crash all parts while clients change schedules, then check that nothing is lost, doubled or early",
		Long: `Runs PostgreSQL, two processes of each part, workers and endpoints of bad habits; has clients change schedules
while faults happen to all of them; heals; and judges what the record, the endpoints and the clients tell with arithmetic of
its own. With --scale 1 there are 20 tenants and 5,000 schedules. A campaign is a seed's: the same faults and
operations in the same order, though not to the microsecond. Campaigns of ten minutes or more at that scale also have to
show enough: ticks, kills, crashes of PostgreSQL, terminated backends and, in half an hour, every crash point.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.databaseURL != "" {
				return errors.New("chaos crashes its PostgreSQL, so it starts its own: leave --database-url out")
			}
			p := newProgress(stderr)
			if f.bugs || len(f.bug) > 0 {
				return hunt(cmd.Context(), *o, f, p, stdout)
			}
			return campaigns(cmd.Context(), *o, f, p, stdout)
		},
	}
	cmd.Flags().UintSliceVar(&f.seeds, "seed", []uint{1}, "the seeds of the campaigns, which run one after another; a seed fixes the faults and operations")
	cmd.Flags().DurationVar(&f.length, "for", 2*time.Minute, "the time in which faults happen")
	cmd.Flags().DurationVar(&f.calm, "calm", time.Second, "the mean pause between two faults of a kind")
	cmd.Flags().IntVar(&f.faulty, "faults", 2, "the number of faults at once; 0: none")
	cmd.Flags().IntVar(&f.busy, "busy", 150, "the most schedules that fire many times a minute")
	cmd.Flags().BoolVar(&f.clocks, "clocks", false, "give each process a clock that is off by seconds, or jumps; this compiles the standard library, too")
	cmd.Flags().BoolVar(&f.disk, "full-disk", false, "run PostgreSQL on a disk in memory that is full at times; this needs root to mount it")
	cmd.Flags().StringVar(&f.old, "old", "", "a commit with the same tables, or oldest: half of the processes run it, and processes switch between the versions")
	cmd.Flags().BoolVar(&f.bugs, "mutants", false, "run a campaign with each deliberate bug; each must be caught")
	cmd.Flags().StringSliceVar(&f.bug, "mutant", nil, "run a campaign with this deliberate bug")
	return cmd
}

// campaigned is the result of campaigns.
type campaigned struct {
	Name      string           `json:"name"`
	Campaigns []*chaos.Verdict `json:"campaigns"`
	Shown     []chaos.Shown    `json:"shown"`
	Holds     bool             `json:"holds"`
}

// mostSaid is the most violations of a campaign that are printed at once.
const mostSaid = 5

// campaigns builds carillon, runs a campaign with each seed and prints the results. It returns errBroken after a violation, or if the
// campaigns show too little.
func campaigns(ctx context.Context, o options, f chaosFlags, p *progress, stdout io.Writer) error {
	made, err := f.build(ctx, o, "fault", p)
	if err != nil {
		return err
	}
	defer made.remove()
	all := campaigned{Name: "chaos", Holds: true}
	for _, seed := range f.seeds {
		s := f.settings(o, made, uint64(seed), p)
		s.Step = p.steps(int(f.length/time.Second), "seconds of faults")
		v, err := chaos.Run(ctx, s)
		if err != nil {
			return err
		}
		p.say("seed %d: %d ticks, %d violations", seed, v.Ticks, v.Violations)
		for _, e := range v.Examples[:min(len(v.Examples), mostSaid)] { // before the other campaigns run
			p.say("%s %s: %s", e.Rule, e.Key, e.What)
		}
		all.Campaigns = append(all.Campaigns, v)
		all.Holds = all.Holds && v.Violations == 0
		if !o.json {
			if err := printVerdict(stdout, v); err != nil {
				return err
			}
		}
	}
	all.Shown = chaos.Together(all.Campaigns)
	if o.scale >= 1 && f.length >= 10*time.Minute {
		all.Holds = all.Holds && !slices.ContainsFunc(all.Shown, func(s chaos.Shown) bool { return !s.Holds() })
	}
	if o.json {
		err = json.NewEncoder(stdout).Encode(all)
	} else {
		err = printShown(stdout, all.Shown)
	}
	if err == nil && !all.Holds {
		err = errBroken
	}
	return err
}

func printShown(w io.Writer, shown []chaos.Shown) error {
	for _, s := range shown {
		if _, err := fmt.Fprintln(w, s); err != nil {
			return err
		}
	}
	return nil
}

// hunt builds carillon with its deliberate bugs, and runs a campaign with each.
func hunt(ctx context.Context, o options, f chaosFlags, p *progress, stdout io.Writer) error {
	made, err := f.build(ctx, o, "fault,mutant", p)
	if err != nil {
		return err
	}
	defer made.remove()
	found, err := chaos.Hunt(ctx, f.settings(o, made, uint64(f.seeds[0]), p), f.bug)
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

// made are the programs of a lab, in a folder that remove deletes.
type made struct {
	dir, now, old string
	commit        string // of the old program
}

func (m *made) remove() { _ = os.RemoveAll(m.dir) }

// build compiles carillon, and also its earlier version if the flags name one.
func (f chaosFlags) build(ctx context.Context, o options, tags string, p *progress) (*made, error) {
	if len(f.seeds) == 0 {
		return nil, errors.New("a campaign has a seed")
	}
	dir, err := os.MkdirTemp("", "carillon-loadtest-*")
	if err != nil {
		return nil, err
	}
	m := &made{dir: dir, now: o.program}
	if m.now == "" {
		p.say("building carillon")
		m.now, err = chaos.Build(ctx, dir, tags, f.clocks)
	}
	if err == nil && f.old != "" {
		p.say("building carillon of %s", f.old)
		m.old, m.commit, err = chaos.BuildAt(ctx, dir, f.old, tags, f.clocks)
	}
	if err != nil {
		m.remove()
		return nil, err
	}
	return m, nil
}

func (f chaosFlags) settings(o options, m *made, seed uint64, p *progress) chaos.Options {
	repeat := fmt.Sprintf("go run ./loadtest chaos --seed %d --for %s --scale %v --calm %s --faults %d --busy %d --clocks=%t --full-disk=%t", seed, f.length, o.scale, f.calm, f.faulty, f.busy, f.clocks, f.disk)
	if m.old != "" {
		repeat += " --old " + m.commit
	}
	return chaos.Options{
		Seed: seed, For: f.length, Tenants: max(2, o.scaled(20)), Schedules: max(40, o.scaled(5000)), Busy: f.busy, Pause: time.Second, Calm: f.calm, Faulty: f.faulty,
		Binary: m.now, Old: m.old, Disk: f.disk, Say: p.say, Repeat: repeat,
	}
}

// printVerdict writes a verdict as text.
func printVerdict(w io.Writer, v *chaos.Verdict) error {
	fmt.Fprintf(w, "chaos, seed %d: %d ticks, %d receipts, %d operations (%d attempts unanswered, %d never known)\n", v.Seed, v.Ticks, v.Receipts, v.Operations, v.Unanswered, v.Doubtful)
	for _, kind := range slices.Sorted(maps.Keys(v.Faults)) {
		fmt.Fprintf(w, "  %-20s %d\n", kind, v.Faults[kind])
	}
	fmt.Fprintf(w, "  %-20s %d\n", "backends terminated", v.Terminated)
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
