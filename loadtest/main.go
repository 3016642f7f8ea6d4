// Command loadtest runs the built carillon as its users do, with load and faults, and compares the results with its promises. Each
// scenario prints a table, or one JSON object with --json: figures, which depend on the machine, and promises, which do not.
//
//	go run ./loadtest smoke --json --scale 0.1
//
// The exit code is 0 if all promises hold, 1 if one does not, and 2 if the scenario could not run.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const (
	exitHolds  = 0
	exitBroken = 1
	exitNotRun = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// errBroken says that a promise does not hold. The report has already been written.
var errBroken = errors.New("a promise does not hold")

// run runs the program and returns its exit code. When it returns, everything that it started has ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := commands(stdout, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitHolds
	case errors.Is(err, errBroken):
		return exitBroken
	}
	fmt.Fprintf(stderr, "loadtest: %v\n", err)
	return exitNotRun
}

// options are the flags of every scenario.
type options struct {
	json        bool
	databaseURL string
	program     string
	scale       float64
	length      time.Duration // of the load; 0: the scenario's own
}

// lasting returns the length of a load: --for if given, else the scale's part of whole, but at least least.
func (o options) lasting(whole, least time.Duration) time.Duration {
	if o.length > 0 {
		return o.length
	}
	return max(least, time.Duration(float64(whole)*o.scale))
}

// scaled returns the scale's part of n, and at least one.
func (o options) scaled(n int) int { return max(1, int(float64(n)*o.scale)) }

// scenario is one command.
type scenario struct {
	name, short string
	run         func(context.Context, options, *progress) (*report, error)
}

// timed are the scenarios that take --for.
var timed = []string{"late", "snapshot", "subjects"}

var scenarios = []scenario{
	{"smoke", "10,000 schedules in 12 zones, pushed and leased, with a kill -9 in the middle", smoke},
	{"upsert", "200,000 schedules upserted in bulk, fresh, unchanged and all changed, against raw COPY of the same rows", upsert},
	{"single", "20,000 schedules upserted one by one by 32 clients, against one bare SQL statement on 32 connections", single},
	{"read", "5,000,000 schedules stored: lists by every filter, get, upcoming and preview at 50 requests a second", read},
	{"subjects", "200,000 profiles against as many schedules in bulk; then 1,000,000 stored: overviews and explanations at 50 requests a second", subjects},
	{"operator", "1,000,000 schedules and 3,000,000 ticks stored: every read of an operator, hold and release, and a bulk pause that is undone", operator},
	{"console", "1,000,000 schedules and 3,000,000 ticks stored: the pages of the console in Chromium, its filter, and its tail of 120,000 ticks", consoled},
	{"later", "10,000 triggers for later over a year of a shifted clock, with pauses, deletions, zone changes, cancels and kills", later},
	{"floor", "the floor: a scheduler with one row for each schedule and one job for each firing", floor},
	{"herd", "1,000,000 schedules of one tenant due at one instant, swept and opened, against the floor", herd},
	{"mix", "1,000,000 schedules of 1,000 tenants, and 300,000 with a timing of their own, against the floor", mix},
	{"pull", "100,000 ticks due at one instant, through SDK workers on the same machine", pull},
	{"handover", "100,000 ticks due at one instant, an SDK worker killed in the middle, and another that finishes all", handover},
	{"declare", "100,000 schedules that a program declares: the first sync, the same again, half of them, and all again, beside another program", declare},
	{"push", "100,000 ticks due at one instant, to an endpoint on the same machine, one by one and in batches", push},
	{"tail", "2,000 ticks a second pushed, in turn with nobody and with a client that follows them: what the tail costs a tick", tailed},
	{"held", "50,000 ticks for a held endpoint: the cost of two minutes of waiting, and how soon all are delivered after it", held},
	{"late", "1,000,000 schedules stored, and 500 ticks a second pushed for two minutes: how late they are", punctual},
	{"snapshot", "1,000 firings a second of cohorts of one for 20 minutes beside an open old snapshot: the blocks that each statement reads", snapshotted},
	{"restart", "500 ticks a second pushed, and PostgreSQL crashed and restarted: how soon no tick is overdue", restarted},
	{"failover", "500 ticks a second pushed, and the primary stopped, killed and silenced while its synchronous standby is promoted", failedOver},
	{"fair", "1,000 small tenants beside one with 500,000 schedules due at once", fair},
	{"grow", "100,000, 1,000,000 and 5,000,000 schedules stored: the cost of a tick, of an idle process, and its memory", grow},
	{"rate", "200,000 schedules due at once in a workflow with a rate of 2,000 a second, two processes, and one killed in the middle", rated},
	{"churn", "20,000 schedules of which a fifth is upserted, paused, resumed and deleted while they fire", churn},
	{"quota", "two processes, and a tenant that sends ten times its quota of requests beside another", quota},
	{"bytes", "100 compressed bodies and 20 lists with large payloads at a time, from one tenant beside another: memory, and the other's waiting", inFlight},
	{"flood", "one tenant reads beside 64 connections of strangers, and beside 20 slow requests of another tenant", flood},
	{"revoke", "two processes: how soon a deleted key, another quota and a rotated key apply in both", revoke},
	{"pair", "two processes on one database share the work, and one takes over when the other is killed", pair},
}

func commands(stdout, stderr io.Writer) *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:           "loadtest",
		Short:         "Compare Carillon with its promises, under load and faults",
		Long:          "Builds carillon and runs it as a process. Exit codes: 0 all promises hold, 1 one does not hold, 2 it could not run.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	flags.BoolVar(&o.json, "json", false, "print one JSON object instead of a table")
	flags.StringVar(&o.databaseURL, "database-url", "", "an empty PostgreSQL database to use instead of a new one")
	flags.StringVar(&o.program, "program", "", "a carillon program to run instead of building this one")
	flags.Float64Var(&o.scale, "scale", 1, "the part of the whole load to run")
	for _, s := range scenarios {
		cmd := &cobra.Command{
			Use:   s.name,
			Short: s.short,
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if !(o.scale > 0 && o.scale <= 100) {
					return fmt.Errorf("--scale must be above 0 and at most 100, not %v", o.scale)
				}
				r, err := s.run(cmd.Context(), o, newProgress(stderr))
				if err != nil {
					return err
				}
				r.name = s.name
				if err := r.write(stdout, o.json); err != nil {
					return err
				}
				if !r.holds() {
					return errBroken
				}
				return nil
			},
		}
		if slices.Contains(timed, s.name) {
			cmd.Flags().DurationVar(&o.length, "for", 0, "the length of the load, instead of the part of the whole time that --scale names")
		}
		root.AddCommand(cmd)
	}
	root.AddCommand(chaosCommand(&o, stdout, stderr), workerCommand(), greedyClient())
	return root
}
