package subjects_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// An erasure deletes the schedules of a key in parts, so that no transaction locks all of their shards. It also deletes a schedule that
// is renamed before its part comes.
func TestAKeyWithManySchedulesIsErasedInParts(t *testing.T) {
	t.Parallel()
	const many = 501
	h := schedulestest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Europe/Berlin"})
	h.Follow("k", many)
	held, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(t.Context())
	if _, err := held.Exec(t.Context(), `SELECT FROM schedule WHERE workflow = 'w500' FOR UPDATE`); err != nil { // the last one
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for range 100 {
			_, err = h.Subjects.Erase(t.Context(), h.Acme, "k", "ann", version.Precondition{})
			if f, ok := err.(*fault.Error); !ok || f.Code != "busy" { // it has eight seconds; the next call finishes what it began
				break
			}
		}
		done <- err
	}()
	limit, again := time.After(3*time.Minute), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for schedulestest.One[int](h, `SELECT count(*)::int FROM schedule WHERE key = 'k'`) != 1 {
		select {
		case <-limit:
			t.Fatal("no part of the schedules is deleted before the others")
		case <-again.C:
		}
	}
	if _, err := held.Exec(t.Context(), `UPDATE schedule SET key = 'other' WHERE workflow = 'w500'`); err != nil {
		t.Fatal(err)
	}
	if err := held.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := schedulestest.One[string](h, `SELECT format('%s %s', sum(schedules), sum(profiles)) FROM erasure`); n != fmt.Sprint(many, " 1") {
		t.Errorf("got %q", n)
	}
	if n := schedulestest.One[int](h, `SELECT count(*)::int FROM schedule`); n != 0 {
		t.Errorf("%d schedules are left", n)
	}
	if n := schedulestest.One[int](h, `SELECT count(*)::int FROM erasure WHERE erased_at IS NULL OR subject IS NOT NULL`); n != 0 {
		t.Errorf("%d erasures are not finished", n)
	}
}
