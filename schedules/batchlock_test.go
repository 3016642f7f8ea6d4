package schedules_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// race calls fn n times, six calls at a time. So the calls meet, and the last one to lock their common row still has it within the
// time of a request on a slow machine.
func race(n int, fn func(i int)) {
	const runners = 6
	next := make(chan int)
	var wg sync.WaitGroup
	for range runners {
		wg.Go(func() {
			for i := range next {
				fn(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func TestManyPutsOfOneKeyMakeOneSchedule(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	var mu sync.Mutex
	made, versions := 0, map[int32]bool{}
	race(24, func(i int) {
		s, first, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, schedulestest.ByCron(fmt.Sprint(i, " 12 * * *")), "ann", version.Precondition{})
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if first {
			made++
		}
		if versions[s.Version] {
			t.Errorf("version %d was answered twice", s.Version)
		}
		versions[s.Version] = true
	})
	if made != 1 || h.Get("a").Version != 24 {
		t.Errorf("%d were made, the version is %d", made, h.Get("a").Version)
	}
	if got := schedulestest.One[string](h, `SELECT (SELECT count(*) FROM schedule) || ' ' || (SELECT count(*) FROM member) || ' ' || (SELECT count(*) FROM revision)`); got != "1 1 23" {
		t.Errorf("got %s schedules, members and revisions, want 1 1 23", got)
	}
}

func TestManyPutsOfOneTimingMakeOneCohort(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	race(24, func(i int) {
		if _, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "w", Key: fmt.Sprint(i)}, schedulestest.ByCron("0 12 * * *"), "ann", version.Precondition{}); err != nil {
			t.Error(err)
		}
	})
	if got := schedulestest.One[string](h, `SELECT (SELECT count(*) FROM cohort) || ' ' || (SELECT count(DISTINCT cohort_id) FROM schedule) || ' ' || (SELECT count(*) FROM member)`); got != "1 1 24" {
		t.Errorf("got %s cohorts, used cohorts and members, want 1 1 24", got)
	}
}

func TestManyChangesOfOneScheduleEndSound(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	race(40, func(i int) {
		var err error
		switch ctx, by := t.Context(), (schedules.Changer{By: "bob"}); i % 5 {
		case 0:
			err = h.Schedules.Delete(ctx, h.Acme, "w", "a", by)
		case 1:
			_, _, err = h.Schedules.Pause(ctx, h.Acme, "w", "a", schedules.PauseParams{}, by)
		case 2:
			_, _, err = h.Schedules.Resume(ctx, h.Acme, "w", "a", schedules.ResumeParams{}, by)
		default:
			_, _, err = h.Schedules.Put(ctx, policy.Name{Tenant: h.Acme, Workflow: "w", Key: "a"}, schedulestest.ByCron(fmt.Sprint(i, " 12 * * *")), "ann", version.Precondition{})
		}
		if f, ok := errors.AsType[*fault.Error](err); err != nil && (!ok || f.Status != 404 && f.Code != "busy") {
			t.Error(err)
		}
	})
	h.Put("a", schedules.Params{Spec: schedulestest.Cron("0 12 * * *"), Status: "active"})
	if got := schedulestest.One[string](h, `
		SELECT (SELECT count(*) FROM schedule) || ' ' || (SELECT count(*) FROM schedule_state) || ' ' ||
			(SELECT count(*) FROM member) || ' ' ||
			(SELECT count(*) FROM member m JOIN schedule s ON s.id = m.schedule_id AND s.cohort_id = m.cohort_id)`); got != "1 1 1 1" {
		t.Errorf("got %s schedules, states, members and members of its cohort", got)
	}
}
