package schedules_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/once"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/schedules/subjects"
)

// timedIn fails the test if not all n schedules of a key are timed in a zone.
func timedIn(h *schedulestest.Fixture, zone, key string, n int) {
	h.T.Helper()
	want := h.NextOf(zone, "0 8 * * *")
	for _, i := range []int{0, n / 2, n - 1} {
		got, err := h.Schedules.Get(h.T.Context(), h.Acme, fmt.Sprint("w", i), key)
		if err != nil || !got.NextAt.Equal(want) {
			h.T.Errorf("schedule %d of %s: got %v, %v, want %s", i, key, got.NextAt, err, want)
		}
	}
	if got := schedulestest.One[int](h, `SELECT count(*)::int FROM schedule s JOIN cohort c ON c.id = s.cohort_id WHERE s.key = '`+key+`' AND c.next_at <> '`+want.Format(time.RFC3339)+`'`); got != 0 {
		h.T.Errorf("%d schedules are not timed in %s", got, zone)
	}
}

// A request that changes the zone of many schedules locks no shard. It begins an operation that locks them step by step.
func TestAKeyThatManyFollowIsRetimedInSteps(t *testing.T) {
	t.Parallel()
	const many = 501
	h := schedulestest.New(t)
	h.PutSubject("k", subjects.SubjectParams{Timezone: "Europe/Berlin"})
	h.Follow("k", many)
	swept, err := h.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var b pgx.Batch
	for shard := range int16(cohorts.Shards) {
		cohorts.LockShard(&b, shard)
	}
	if err := swept.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	k, made, op, err := h.Subjects.PutSubject(t.Context(), h.Acme, "k", subjects.SubjectParams{Timezone: "Asia/Tokyo"}, "ann", version.Precondition{})
	if err := swept.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err != nil || made || op == nil || k.Timezone != "Asia/Tokyo" || op.Kind != "retime_subject" || op.Total == nil || *op.Total != many {
		t.Fatalf("got %+v, %t, %+v, %v", k, made, op, err)
	}
	timedIn(h, "Europe/Berlin", "k", many)
	if got := h.Operate(op.ID); got.State != operations.Succeeded || got.Done != many || got.Counts["retimed"] != many {
		t.Errorf("got %+v", got)
	}
	timedIn(h, "Asia/Tokyo", "k", many)
	if _, _, op, err := h.Subjects.PutSubject(t.Context(), h.Acme, "k", subjects.SubjectParams{Timezone: "Asia/Tokyo"}, "ann", version.Precondition{}); err != nil || op != nil {
		t.Errorf("the same profile again: got %+v, %v", op, err)
	}
}

// The operation follows its subject to another name. A schedule that is stored meanwhile has the new zone at once. Another change of the zone
// begins another operation.
func TestARetimingKeyMayBeRenamedAndChangedAgain(t *testing.T) {
	t.Parallel()
	const many = 501
	h := schedulestest.New(t)
	put := func(key, zone string) *operations.Answer {
		t.Helper()
		_, _, op, err := h.Subjects.PutSubject(t.Context(), h.Acme, key, subjects.SubjectParams{Timezone: zone}, "ann", version.Precondition{})
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	put("k", "Europe/Berlin")
	h.Follow("k", many)
	first := put("k", "Asia/Tokyo")
	if _, _, err := h.Subjects.Rename(t.Context(), h.Acme, "k", subjects.RenameParams{To: "j"}, once.Request{}); err != nil {
		t.Fatal(err)
	}
	late, _, err := h.Schedules.Put(t.Context(), policy.Name{Tenant: h.Acme, Workflow: "late", Key: "j"}, schedulestest.FollowingSubject("0 8 * * *"), "ann", version.Precondition{})
	if err != nil || !late.NextAt.Equal(h.NextOf("Asia/Tokyo", "0 8 * * *")) {
		t.Errorf("got %v, %v", late.NextAt, err)
	}
	second := put("j", "America/Lima")
	if got := h.Operate(first.ID); got.State != operations.Succeeded || got.Counts["retimed"] != many+1 {
		t.Errorf("got %+v", got)
	}
	timedIn(h, "America/Lima", "k", many)
	if got := h.Operate(second.ID); got.State != operations.Succeeded || got.Counts["retimed"] != 0 || got.Counts["unchanged"] != many+1 {
		t.Errorf("got %+v", got)
	}
	timedIn(h, "America/Lima", "k", many)
	third := put("j", "Asia/Tokyo")
	if _, err := h.Subjects.Erase(t.Context(), h.Acme, "j", "ann", version.Precondition{}); err != nil {
		t.Fatal(err)
	}
	if got := h.Operate(third.ID); got.State != operations.Cancelled {
		t.Errorf("an operation of an erased key: got %+v", got)
	}
}
