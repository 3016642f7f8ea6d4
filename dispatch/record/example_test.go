package record_test

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/ident"
)

// Three ticks of one workflow and nominal time share one row of the index, packed into five bytes.
func ExampleIndexEntries() {
	nine := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	var entries record.IndexEntries
	entries.Add(1, []record.Tick{
		{Workflow: "digest", ScheduleID: 1007, NominalAt: nine},
		{Workflow: "digest", ScheduleID: 1001, NominalAt: nine},
		{Workflow: "digest", ScheduleID: 1001, NominalAt: nine, Seq: 1}, // a manual one
	})
	var batch pgx.Batch
	entries.Queue(&batch)
	arguments := batch.QueuedQueries[0].Arguments
	packed := arguments[4].([][]byte)[0]
	fmt.Printf("%d row: % x\n", batch.Len(), packed)

	keys, err := record.UnpackKeys(packed, nine, 3)
	for _, k := range keys {
		fmt.Println(k.Schedule, k.At.Format(time.TimeOnly), k.Seq)
	}
	fmt.Println(err)
	// Output:
	// 1 row: d2 0f 01 01 0c
	// 1001 09:00:00 0
	// 1001 09:00:00 1
	// 1007 09:00:00 0
	// <nil>
}

// An UPDATE of many ticks is made in parts, each of keys that are near each other in time.
func ExampleNearParts() {
	nine := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	parts := record.NearParts([]ident.TickKey{
		{Schedule: 1, At: nine}, {Schedule: 2, At: nine.Add(24 * time.Hour)}, {Schedule: 3, At: nine.Add(time.Second)},
	})
	for _, part := range parts {
		fmt.Println(len(part), part[0].At.Format("Mon 15:04"))
	}
	// Output:
	// 2 Sun 09:00
	// 1 Mon 09:00
}
