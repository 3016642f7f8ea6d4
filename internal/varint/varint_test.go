package varint_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillonhq/carillon/internal/varint"
)

func TestWhatWasWrittenIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOf(rapid.Uint64()).Draw(t, "numbers")
		b := binary.AppendUvarint(nil, uint64(len(numbers)))
		for _, n := range numbers {
			b = append(binary.AppendUvarint(b, n), 7)
		}
		cut := rapid.IntRange(0, len(b)).Draw(t, "cut")
		r := varint.NewReader(b[:cut])
		read := make([]uint64, r.Count(len(numbers)))
		for i := range read {
			read[i] = r.Next()
			if c := r.Byte(); c != 7 && !r.Broken() {
				t.Fatalf("got %d", c)
			}
		}
		if r.Whole() != (cut == len(b)) {
			t.Fatalf("whole: %v, after %d of %d bytes", r.Whole(), cut, len(b))
		}
		if r.Whole() && !slices.Equal(read, numbers) {
			t.Fatalf("got %v, want %v", read, numbers)
		}
	})
}

func TestABrokenReaderReadsZeros(t *testing.T) {
	t.Parallel()
	for name, b := range map[string][]byte{"empty": nil, "unfinished": {0x80}, "too large": binary.AppendUvarint(nil, 11), "no number": slices.Repeat([]byte{0xff}, 11)} {
		r := varint.NewReader(append(b, 1, 1)[:len(b)])
		if n := r.Count(10); n != 0 || !r.Broken() || r.Whole() || len(r.Rest()) != 0 || r.Next() != 0 || r.Byte() != 0 {
			t.Errorf("%s: got %d, broken: %v", name, n, r.Broken())
		}
	}
}
