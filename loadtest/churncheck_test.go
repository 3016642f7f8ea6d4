package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// churnSample returns a schedule and a record of it without a fault. The schedule fires every 3 seconds. Then it is paused, resumed,
// upserted, retimed to every 5 seconds, deleted and created again; each change takes a tenth of a second. Second 0 is a multiple of 15.
func churnSample() (s *churned, from, to time.Time, records []churnTick, seen deliverySum) {
	zero := time.Unix(1_800_000_000, 0).UTC()
	sec := func(n float64) time.Time { return zero.Add(time.Duration(n * float64(time.Second))) }
	s = &churned{key: "k", missed: "last"}
	s.made(sec(-2), cadence{3, 0})
	s.changes[0].ended = sec(-1)
	version := int64(1)
	do := func(at float64, kind string, every int) {
		c := s.next(kind)
		c.began, c.ended = sec(at), sec(at+0.1)
		if version++; kind == created {
			version = 1
		}
		if c.version = version; every > 0 {
			c.cadence = cadence{every, 0}
		}
		s.changes = append(s.changes, c)
	}
	do(6.05, paused, 0)  // 0, 3, 6 are due, and 6 is recorded as skipped
	do(11.5, resumed, 0) // 9 is not due
	do(13, upserted, 0)  // 12 is due
	do(16, retimed, 5)   // 15 and 20 are due
	do(21, deleted, 0)
	do(24.95, created, 5) // 25 may be due; 30 is due
	last := func(n float64) *time.Time { return new(sec(n)) }
	row := func(life int, at float64, version int64, state, reason int16, missed int, before *time.Time) {
		records = append(records, churnTick{
			Key: new("k"), Life: new(life), NominalAt: sec(at), Version: version, Missed: missed, State: state, Reason: reason,
			FiredAt: sec(at + 0.06), LastAt: before,
		})
	}
	row(1, 3, 1, recordedSucceeded, 0, 1, nil) // and stands for 0
	row(1, 6, 2, recordedSkipped, becausePaused, 0, nil)
	row(1, 12, 3, recordedSucceeded, 0, 0, last(3))
	row(1, 15, 4, recordedSucceeded, 0, 0, last(12))
	row(1, 20, 5, recordedCancelled, 0, 0, last(15))
	row(2, 30, 1, recordedSucceeded, 0, 0, nil)
	records[4].FiredAt = sec(21.05)
	return s, sec(0), sec(30), records, deliverySum{ticks: 4}
}

// The checker of churn finds each deliberate fault, and nothing where there is none.
func TestChurnCheckerFindsFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(s *churned, r *[]churnTick, seen *deliverySum)
		want   map[string]int
	}{
		"none":          {func(*churned, *[]churnTick, *deliverySum) {}, nil},
		"one in doubt":  {func(_ *churned, r *[]churnTick, d *deliverySum) { doubt(r); d.ticks++ }, nil},
		"lost":          {func(_ *churned, r *[]churnTick, d *deliverySum) { *r = (*r)[:5]; d.ticks-- }, map[string]int{"lost": 1}},
		"lost in a gap": {func(_ *churned, r *[]churnTick, _ *deliverySum) { (*r)[0].Missed = 0 }, map[string]int{"lost": 1}},
		"lost by upsert": {func(s *churned, r *[]churnTick, d *deliverySum) {
			s.changes[3].began = s.changes[3].began.Add(-2 * time.Second)
			*r = append((*r)[:2:2], (*r)[3:]...)
			(*r)[2].LastAt = (*r)[0].LastAt
			(*r)[2].LastAt = new((*r)[0].NominalAt)
			d.ticks--
		}, map[string]int{"lost": 1}},
		"twice": {func(_ *churned, r *[]churnTick, d *deliverySum) {
			doubt(r)
			(*r)[5].NominalAt = (*r)[6].NominalAt
			(*r)[5].FiredAt = (*r)[6].FiredAt
			(*r)[6].LastAt = new((*r)[5].NominalAt)
			d.ticks++
		}, map[string]int{"doubled": 1}},
		"of both lives": {func(_ *churned, r *[]churnTick, _ *deliverySum) { (*r)[4].Missed = 2 }, map[string]int{"not_due": 1}},
		"while paused": {func(_ *churned, r *[]churnTick, _ *deliverySum) {
			(*r)[1].NominalAt = (*r)[1].NominalAt.Add(3 * time.Second)
		}, map[string]int{"not_due": 1, "early": 1, "lost": 1}},
		"no such time": {func(_ *churned, r *[]churnTick, _ *deliverySum) {
			(*r)[5].NominalAt = (*r)[5].NominalAt.Add(-time.Second)
		}, map[string]int{"not_due": 1, "lost": 1}},
		"a manual one": {func(_ *churned, r *[]churnTick, _ *deliverySum) { (*r)[3].Seq = 1 }, map[string]int{"not_due": 1}},
		"early": {func(_ *churned, r *[]churnTick, _ *deliverySum) {
			(*r)[3].FiredAt = (*r)[3].NominalAt.Add(-time.Millisecond)
		}, map[string]int{"early": 1}},
		"skipped": {func(_ *churned, r *[]churnTick, d *deliverySum) {
			(*r)[5].State, (*r)[5].Reason = recordedSkipped, becausePaused
			d.ticks--
		}, map[string]int{"unexplained": 1}},
		"cancelled": {func(_ *churned, r *[]churnTick, d *deliverySum) { (*r)[5].State = recordedCancelled; d.ticks-- }, map[string]int{"unexplained": 1}},
		"opened after its key was made again": {func(_ *churned, r *[]churnTick, _ *deliverySum) {
			(*r)[4].FiredAt = (*r)[4].FiredAt.Add(5 * time.Second)
		}, nil},
		"runs for ever":  {func(_ *churned, r *[]churnTick, d *deliverySum) { (*r)[5].State = 1; d.ticks-- }, map[string]int{"not_ended": 1}},
		"an old version": {func(_ *churned, r *[]churnTick, _ *deliverySum) { (*r)[3].Version = 3 }, map[string]int{"wrong_version": 1}},
		"a version that was just replaced": {func(_ *churned, r *[]churnTick, _ *deliverySum) {
			(*r)[3].FiredAt = (*r)[3].FiredAt.Add(1041 * time.Millisecond)
		}, map[string]int{"wrong_version": 1}},
		"a version that comes later": {func(_ *churned, r *[]churnTick, _ *deliverySum) { (*r)[3].Version = 5 }, map[string]int{"wrong_version": 1}},
		"no last time":               {func(_ *churned, r *[]churnTick, _ *deliverySum) { (*r)[3].LastAt = nil }, map[string]int{"wrong_last_timestamp": 1}},
		"a last time":                {func(_ *churned, r *[]churnTick, _ *deliverySum) { (*r)[5].LastAt = new((*r)[3].NominalAt) }, map[string]int{"wrong_last_timestamp": 1}},
		"came twice":                 {func(_ *churned, _ *[]churnTick, d *deliverySum) { d.again = 1 }, map[string]int{"doubled": 1}},
		"never came":                 {func(_ *churned, _ *[]churnTick, d *deliverySum) { d.ticks-- }, map[string]int{"undelivered": 1}},
		"of nobody": {func(_ *churned, r *[]churnTick, _ *deliverySum) {
			*r = append(*r, churnTick{NominalAt: time.Unix(1, 0)})
		}, map[string]int{"not_due": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, from, to, records, seen := churnSample()
			test.change(s, &records, &seen)
			f := checkChurn([]*churned{s}, from, to, records, seen)
			if diff := cmp.Diff(test.want, f.counts); diff != "" {
				t.Errorf("%s\n%q", diff, f.examples)
			}
		})
	}
}

// doubt records the tick of the second in which the schedule was made again.
func doubt(r *[]churnTick) {
	one := (*r)[5]
	one.NominalAt, one.FiredAt = one.NominalAt.Add(-5*time.Second), one.FiredAt.Add(-5*time.Second)
	(*r)[5].LastAt = new(one.NominalAt)
	*r = append((*r)[:5:5], one, (*r)[5])
}
