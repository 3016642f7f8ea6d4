package lease

import (
	"testing"
	"time"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestReadyTicksComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tries := rapid.SliceOf(rapid.Custom(func(t *rapid.T) record.Try {
			return record.Try{
				TickKey: ident.TickKey{
					Schedule: rapid.Int64Range(1, 1<<60).Draw(t, "schedule"),
					At:       time.Unix(rapid.SampledFrom([]int64{-5, 0, 1, 1 << 31, 1 << 34}).Draw(t, "at"), 0).UTC(),
					Seq:      rapid.Int32Range(0, 1).Draw(t, "seq"),
				},
				Attempt: rapid.Int16Range(1, 2).Draw(t, "attempt"),
			}
		})).Draw(t, "tries")
		got, err := unpackReady(packReady(tries), len(tries))
		if err != nil {
			t.Fatal(err)
		}
		if len(tries) > 0 && !cmp.Equal(tries, got) {
			t.Fatal(cmp.Diff(tries, got))
		}
		if _, err := unpackReady(packReady(tries), len(tries)+1); err == nil {
			t.Fatal("one more than there are was read")
		}
	})
}
