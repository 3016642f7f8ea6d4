package chunk_test

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/schedules/runs"
)

// A batch cuts the due members of a cohort into chunks.
func ExampleBatch() {
	b := chunk.NewBatch(7)
	b.Most = 2
	at := time.Date(2026, time.March, 8, 9, 0, 0, 0, time.UTC)
	of := chunk.Source{Tenant: 1, Cohort: 12, Workflow: "reports", Run: runs.Run{At: at}}
	b.AddMembers(of, []chunk.Member{{ID: 101}, {ID: 102}, {ID: 103}, {ID: 104}, {ID: 105}})
	for _, c := range b.Made {
		fmt.Println("a full chunk with", c.Count, "ticks")
	}
	// Output:
	// a full chunk with 2 ticks
	// a full chunk with 2 ticks
}

// A process tells the others which chunks it has swept.
func ExampleParseRun() {
	swept := chunk.Run{JobArgs: chunk.JobArgs{Chunk: 41, Through: 43}, Lane: chunk.SmallLane, Priority: 1}
	fmt.Println(swept.Text())

	run, ok := chunk.ParseRun(swept.Text())
	fmt.Println(run.Chunk, run.Through, run.Lane, ok)
	_, ok = chunk.ParseRun("hello")
	fmt.Println(ok)
	// Output:
	// small 1 41 43
	// 41 43 small true
	// false
}
