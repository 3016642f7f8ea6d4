package cohorts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/schedules/schedulestest"
)

// A tenant with more schedules uses more shards. Its older schedules stay in their shard, and a put finds them there.
func TestSchedulesAreLaidOverMoreShardsAsThereAreMore(t *testing.T) {
	t.Parallel()
	h := schedulestest.New(t)
	const n, each = 24_000, 1_000
	var all []string
	for from := 0; from < n; from += each {
		var b strings.Builder
		for i := range each {
			fmt.Fprintf(&b, `{"workflow": "w", "key": "%d", "spec": {"cron": "0 12 * * *"}}`+"\n", from+i)
		}
		text := b.String()
		if _, sum := h.UpsertBulk(text); sum.Inserted != each {
			t.Fatalf("from %d: %+v", from, sum)
		}
		all = append(all, text)
	}
	for _, c := range []struct {
		upto, shards, most int
	}{{2_000, 1, 2_000}, {20_000, 4, 2_000 + 5_500}, {n, 16, 2_000 + 5_500 + 700}} {
		got := schedulestest.One[string](h, fmt.Sprintf(`
			SELECT count(*) || ' ' || (max(n) <= %d)
			FROM (SELECT shard, count(*) AS n FROM schedule WHERE key::int < %d GROUP BY shard) s`, c.most, c.upto))
		if want := fmt.Sprint(c.shards, " true"); got != want {
			t.Errorf("of the first %d: %s, want %s", c.upto, got, want)
		}
	}
	if _, sum := h.UpsertBulk(strings.Join(all, "")); sum.Unchanged != n {
		t.Errorf("again: %+v, want all unchanged", sum)
	}
}
