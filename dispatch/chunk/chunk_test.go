package chunk_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestGroupsComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "at"), 0).UTC()
		spread := rapid.SampledFrom([]int64{0, 1, 60, 1 << 31}).Draw(t, "spread") // of the nominal times
		groups := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) chunk.Group {
			ids := rapid.SliceOfNDistinct(rapid.Int64Range(1, 1<<60), 1, 20, rapid.ID).Draw(t, "ids")
			slices.Sort(ids)
			return chunk.Group{
				Cohort: rapid.Int64Range(1, 1<<60).Draw(t, "cohort"), At: at.Add(time.Duration(rapid.Int64Range(0, spread).Draw(t, "after")) * time.Second), Workflow: rapid.IntRange(0, 40).Draw(t, "workflow"),
				DST:  calendar.DSTNote(rapid.IntRange(0, 3).Draw(t, "dst")),
				Late: rapid.Bool().Draw(t, "late"), Drop: rapid.Bool().Draw(t, "drop"), Forced: rapid.Bool().Draw(t, "forced"),
				Missed: rapid.IntRange(0, 1<<30).Draw(t, "missed"), IDs: ids,
			}
		}), 0, 20).Draw(t, "groups")
		got, err := chunk.UnpackGroups(at, chunk.PackGroups(at, groups))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(groups, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestTriesComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tries := rapid.SliceOf(rapid.Custom(func(t *rapid.T) record.Try {
			return record.Try{
				TickKey: ident.TickKey{
					Schedule: rapid.Int64Range(1, 1<<60).Draw(t, "schedule"),
					At:       time.Unix(rapid.Int64Range(0, 1<<34).Draw(t, "at"), 0).UTC(),
					Seq:      rapid.Int32Range(0, 1<<24-1).Draw(t, "seq"),
				},
				Attempt: rapid.Int16Range(1, 100).Draw(t, "attempt"), Answer: rapid.Bool().Draw(t, "answer"),
			}
		})).Draw(t, "tries")
		got, err := chunk.UnpackTries(chunk.PackTries(tries))
		if err != nil {
			t.Fatal(err)
		}
		if len(tries) > 0 && !cmp.Equal(tries, got) {
			t.Fatal(cmp.Diff(tries, got))
		}
	})
}

func TestBrokenItemsAreAnError(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		if groups, err := chunk.UnpackGroups(time.Now(), b); err == nil && len(b) == 0 {
			t.Fatalf("nothing was read as %v", groups)
		}
		_, _ = chunk.UnpackTries(b)
	})
}
