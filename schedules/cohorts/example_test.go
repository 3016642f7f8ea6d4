package cohorts_test

import (
	"fmt"

	"github.com/carillonhq/carillon/schedules/cohorts"
)

// A tenant's schedules go on more shards as it grows. A schedule stays in the shard in which it was created.
func ExampleShardsFor() {
	for _, stored := range []int{0, 10_000, 1_000_000} {
		fmt.Println(stored, cohorts.ShardsFor(stored))
	}
	// Output:
	// 0 1
	// 10000 4
	// 1000000 64
}
