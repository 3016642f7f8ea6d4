package web_test

import (
	"slices"
	"testing"

	"github.com/carillonhq/carillon/internal/web"
)

func TestPagesHoldEachItemOnce(t *testing.T) {
	t.Parallel()
	cursors, err := web.NewCursor([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	all := []int{1, 2, 3, 4, 5, 6, 7}
	for limit := 1; limit <= 8; limit++ {
		for _, most := range []int{1, 2, 100} { // rows that a read may hold
			var got []int
			for cursor := ""; ; {
				after := 0
				p, err := cursors.Page(7, "numbers", limit, cursor, &after)
				if err != nil {
					t.Fatal(err)
				}
				rows := all[after:min(len(all), after+p.Rows())]
				full := len(rows) > most
				page, next, err := web.Cut(p, rows[:min(most, len(rows))], full, func(n int) int { return n })
				if err != nil || len(page) > limit || len(page) == 0 {
					t.Fatalf("limit %d: got %v, %v", limit, page, err)
				}
				got = append(got, page...)
				if next == nil {
					break
				}
				cursor = *next
			}
			if !slices.Equal(got, all) {
				t.Errorf("limit %d, at most %d rows: got %v", limit, most, got)
			}
		}
	}
}

func TestACursorOfAnotherListIsRefused(t *testing.T) {
	t.Parallel()
	cursors, err := web.NewCursor([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := cursors.Page(7, "numbers", 1, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	cursor, err := p.Next(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []struct {
		tenant int32
		list   string
	}{{8, "numbers"}, {7, "letters"}} {
		after := 0
		if _, err := cursors.Page(other.tenant, other.list, 1, *cursor, &after); err == nil {
			t.Errorf("tenant %d may read %s from %d on", other.tenant, other.list, after)
		}
	}
}
