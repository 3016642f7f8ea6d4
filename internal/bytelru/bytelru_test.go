package bytelru

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTheLeastRecentlyUsedIsEvicted(t *testing.T) {
	t.Parallel()
	c := New[int](1000, func(v int) int { return v })
	c.Add(1, 200)
	c.Add(2, 200)
	if _, ok := c.Get(1); !ok { // from here on 2 is the least recently used
		t.Fatal("a value that fits is not stored")
	}
	c.Add(3, 100)
	if _, ok := c.Get(2); ok {
		t.Error("the least recently used value was not evicted")
	}
	for _, key := range []int{1, 3} {
		if _, ok := c.Get(key); !ok {
			t.Errorf("%d was evicted, though it fits", key)
		}
	}
	c.Add(3, 900)
	if _, ok := c.Get(3); ok {
		t.Error("a value larger than the limit is stored")
	}
}

func TestBytesAreCounted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := New[int](5000, func(v int) int { return v })
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if key := rapid.IntRange(0, 20).Draw(t, "key"); rapid.Bool().Draw(t, "removes") {
				c.Remove(key)
			} else {
				c.Add(key, rapid.IntRange(0, 6000).Draw(t, "size"))
			}
			want := 0
			for _, v := range c.values.Values() {
				want += v + entryBytes
			}
			if c.bytes != want || want > c.limit {
				t.Fatalf("counts %d bytes, holds %d of %d", c.bytes, want, c.limit)
			}
		}
	})
}
