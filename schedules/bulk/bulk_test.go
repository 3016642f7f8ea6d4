package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

// A bulk upsert of lines has the same results as a put of each line for another tenant.
func TestBulkIsManyPuts(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		w := fmt.Sprint("w", run)
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			h.ChangeBetween(rt, w)
			lines := rapid.SliceOfN(schedulestest.DrawLine(w), 1, 8).Draw(rt, "lines")
			h.TakeHanded()
			results, _ := h.UpsertBulk(schedulestest.NDJSON(t, lines...))
			handed := h.HandedKeys()
			want := h.PutEach(rt, lines)
			for i, r := range results {
				if got := told(r, want[i]); got != want[i] || r.Line != i+1 {
					rt.Fatalf("line %d: put says %q, bulk %q", i+1, want[i], got)
				}
			}
			if diff := cmp.Diff(h.HandedKeys(), handed); diff != "" {
				rt.Fatalf("handed out (-put +bulk):\n%s", diff)
			}
			if diff := cmp.Diff(h.Dump(h.Other, w), h.Dump(h.Acme, w)); diff != "" {
				rt.Fatalf("stored (-put +bulk):\n%s", diff)
			}
		}
	})
	if got := schedulestest.One[int](h, `SELECT count(*) FROM member m FULL JOIN schedule s ON s.id = m.schedule_id AND s.cohort_id = m.cohort_id AND s.phase = m.phase AND s.tenant_id = m.tenant_id
		WHERE m.schedule_id IS NULL AND s.cohort_id IS NOT NULL OR s.id IS NULL`); got != 0 {
		t.Errorf("%d members are not their schedule's", got)
	}
}

// told returns the result of a line in the words of PutEach.
func told(r bulk.Result, want string) string {
	switch {
	case strings.HasSuffix(want, " hidden or error") && (r.Result == bulk.Duplicate || r.Result == schedules.Failed):
		return want
	case r.Error == nil:
		return r.Key + " " + r.Result
	}
	return r.Key + " error " + (&fault.Error{Detail: r.Error.Detail, Fields: r.Error.Errors}).Error()
}

func TestBulkEndsWithItsBody(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	broken := errors.New("broken")
	_, err := h.InBulk.Upsert(t.Context(), h.Acme, "ann", io.NopCloser(io.MultiReader(strings.NewReader(schedulestest.DailyLine("a")), failing{broken})), func([]bulk.Result) error { return nil })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if n := schedulestest.One[int](h, `SELECT count(*) FROM schedule`); n != 0 {
		t.Errorf("got %d schedules of half a batch", n)
	}
	_, err = h.InBulk.Upsert(t.Context(), h.Acme, "ann", io.NopCloser(strings.NewReader(schedulestest.DailyLine("a"))), func([]bulk.Result) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestManyBulksOfTheSameKeysEndSound(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			var b strings.Builder
			for j := range 300 {
				k := j
				if i%2 == 1 {
					k = 299 - j
				}
				fmt.Fprintf(&b, `{"workflow":"w%d","key":"%d","spec":{"cron":"%d 12 * * *"}}`+"\n", k%3, k, i)
			}
			_, err := h.InBulk.Upsert(t.Context(), h.Acme, "ann", io.NopCloser(strings.NewReader(b.String())), func(results []bulk.Result) error {
				for _, r := range results {
					if r.Error != nil && r.Error.Code != "busy" {
						t.Errorf("got %+v", r.Error)
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := schedulestest.One[string](h, `
		SELECT (SELECT count(*) FROM schedule) || ' ' || (SELECT count(*) FROM schedule_state) || ' ' ||
			(SELECT count(*) FROM member m JOIN schedule s ON s.id = m.schedule_id AND s.cohort_id = m.cohort_id)`); got != "300 300 300" {
		t.Errorf("got %s schedules, states and members", got)
	}
}

func TestABodyIsReadAsFastAsItsTenantMayStore(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	var paced []int
	h.InBulk = schedulestest.NewBulk(h.Schedules, h.Subjects, func(_ context.Context, tenant tenants.ID, n int) error {
		if tenant != h.Acme {
			t.Errorf("got tenant %d", tenant)
		}
		if paced = append(paced, n); len(paced) > 2 {
			return context.DeadlineExceeded
		}
		return nil
	})
	var body strings.Builder
	for n := range 2500 {
		fmt.Fprintf(&body, `{"workflow": "w", "key": "k%d", "spec": {"cron": "0 8 * * *"}}`+"\n", n)
	}
	stored := 0
	_, err := h.InBulk.Upsert(t.Context(), h.Acme, "ann", io.NopCloser(strings.NewReader(body.String())), func(batch []bulk.Result) error {
		stored += len(batch)
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) || stored > 2000 || !slices.Equal(paced, []int{1000, 1000, 500}) {
		t.Errorf("got %d stored, %v after %v", stored, err, paced)
	}
}
