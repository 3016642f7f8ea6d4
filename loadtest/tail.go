package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
)

const (
	tailPairs   = 7
	tailRate    = 2_000 // ticks a second
	tailBatch   = 100
	tailWindow  = 20 * time.Second
	tailBegins  = 2 * time.Second  // until all processes know that somebody follows
	tailForgets = 13 * time.Second // until they know that nobody does
	tailCost    = 2                // µs of CPU a tick
)

// tailed pushes ticks at a steady rate, alternately without a follower and with one client that follows them. It compares the CPU that a
// tick costs.
func tailed(ctx context.Context, o options, p *progress) (*report, error) {
	return delivered(ctx, o, p, func(ctx context.Context, d *deliveries) error {
		stop, err := d.listen(ctx, lateWorkflow, tailBatch)
		if err != nil {
			return err
		}
		defer stop()
		window := max(5*time.Second, time.Duration(float64(tailWindow)*o.scale))
		from := time.Now().Truncate(time.Second).Add(20 * time.Second)
		begun := from.Add(5 * time.Second) // what the first ticks prepare is not counted
		last := begun.Add(tailPairs * (2*window + tailBegins + tailForgets))
		if err := d.steady(ctx, tailRate, from, last.Add(time.Minute)); err != nil {
			return err
		}
		if err := analyzed(ctx, d.db); err != nil {
			return err
		}
		if err := sleep(ctx, time.Until(begun)); err != nil {
			return err
		}
		var without, with, more []float64
		shown := 0
		for i := range tailPairs {
			alone, err := d.costOf(ctx, window)
			if err != nil {
				return err
			}
			var followed float64
			n, err := d.followed(ctx, func() (err error) {
				followed, err = d.costOf(ctx, window)
				return err
			})
			if err != nil {
				return err
			}
			shown += n
			without, with, more = append(without, alone), append(with, followed), append(more, followed-alone)
			d.say("pair %d of %d: %.1f µs a tick, and %.1f with a client that was shown %d ticks", i+1, tailPairs, alone, followed, n)
			if err := sleep(ctx, tailForgets); err != nil {
				return err
			}
		}
		d.report.figure("ticks_per_second", tailRate)
		d.report.figure("pairs", tailPairs)
		d.report.figure("alone_us_a_tick", median(without))
		d.report.figure("followed_us_a_tick", median(with))
		d.report.figure("least_more_us_a_tick", slices.Min(more))
		d.report.figure("most_more_us_a_tick", slices.Max(more))
		d.report.atMost("more_us_a_tick", median(more), tailCost)
		d.report.atLeast("shown", float64(shown), tailPairs*window.Seconds())
		return nil
	})
}

// costOf returns the CPU of PostgreSQL and Carillon for each tick that is delivered in a while, in microseconds.
func (d *deliveries) costOf(ctx context.Context, length time.Duration) (float64, error) {
	before, err := costUntilNow(ctx, d.db, d.server.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	came := d.came.Load()
	if err := sleep(ctx, length); err != nil {
		return 0, err
	}
	after, err := costUntilNow(ctx, d.db, d.server.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	n := int(d.came.Load() - came)
	if least := int(0.9 * tailRate * length.Seconds()); n < least {
		return 0, fmt.Errorf("only %d ticks were delivered in %s, want %d: the machine is too slow", n, length, least)
	}
	used := after.less(before)
	return micros(used.postgres+used.ours, n), nil
}

// followed calls run while a client follows the ticks, and returns how many it was shown.
func (d *deliveries) followed(ctx context.Context, run func() error) (shown int, err error) {
	follow, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for event, err := range d.client.Ticks.Tail(follow, carillon.TailParams{}) {
			if err != nil && follow.Err() == nil {
				ended <- err
				return
			}
			if event.Tick != nil {
				shown++
			}
		}
		ended <- nil
	}()
	err = sleep(ctx, tailBegins)
	if err == nil {
		err = run()
	}
	cancel()
	return shown, errors.Join(<-ended, err)
}

// sleep waits for a while, or until ctx ends.
func sleep(ctx context.Context, length time.Duration) error {
	select {
	case <-time.After(length):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[len(sorted)/2]
}
