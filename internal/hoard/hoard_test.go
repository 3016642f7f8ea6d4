package hoard

import (
	"testing"

	"pgregory.net/rapid"
)

func TestAHoardKeepsNoMoreThanItsBytes(t *testing.T) {
	t.Parallel()
	h := New[int](1000, func(v int) int { return v })
	h.Add(1, 200)
	h.Add(2, 200)
	if _, ok := h.Get(1); !ok { // from here on 2 is the one that was not used for longest
		t.Fatal("what there is room for is not kept")
	}
	h.Add(3, 100)
	if _, ok := h.Get(2); ok {
		t.Error("what was not used for longest stays")
	}
	for _, key := range []int{1, 3} {
		if _, ok := h.Get(key); !ok {
			t.Errorf("%d is gone, though there is room", key)
		}
	}
	h.Add(3, 900)
	if _, ok := h.Get(3); ok {
		t.Error("what is larger than all room is kept")
	}
}

func TestAHoardCountsWhatItKeeps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := New[int](5000, func(v int) int { return v })
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if key := rapid.IntRange(0, 20).Draw(t, "key"); rapid.Bool().Draw(t, "removes") {
				h.Remove(key)
			} else {
				h.Add(key, rapid.IntRange(0, 6000).Draw(t, "size"))
			}
			want := 0
			for _, v := range h.kept.Values() {
				want += v + entryBytes
			}
			if h.bytes != want || want > h.most {
				t.Fatalf("counts %d bytes, keeps %d of %d", h.bytes, want, h.most)
			}
		}
	})
}
