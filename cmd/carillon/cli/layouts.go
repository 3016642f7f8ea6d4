package cli

import (
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// tickRow is a tick in a list.
var tickRow = output.Layout{
	Name: []string{"tick_id"},
	Columns: []output.Column{
		{Name: "tick", Path: "tick_id"},
		{Name: "schedule", Show: scheduleOf},
		{Name: "time", Path: "timestamp", Local: "local_time", Kind: output.Time},
		{Name: "state"},
		{Name: "reason"},
		{Name: "late", Path: "lateness_ms", Kind: output.Millis},
		{Name: "attempt"},
		{Name: "cause", Wide: true},
		{Name: "zone", Path: "timezone", Wide: true},
		{Name: "fired", Path: "fired_at", Kind: output.Time, Wide: true},
		{Name: "ended", Path: "ended_at", Kind: output.Time, Wide: true},
		{Name: "error", Wide: true},
	},
}

// tickCard is one tick.
var tickCard = output.Layout{
	Name: []string{"tick_id"},
	Columns: []output.Column{
		{Name: "tick", Path: "tick_id"},
		{Name: "schedule", Show: scheduleOf},
		{Name: "state"},
		{Name: "reason"},
		{Name: "time", Path: "timestamp", Local: "local_time", Kind: output.Time},
		{Name: "zone", Path: "timezone"},
		{Name: "due", Path: "due_at", Kind: output.Time},
		{Name: "fired", Path: "fired_at", Kind: output.Time},
		{Name: "ended", Path: "ended_at", Kind: output.Time},
		{Name: "late", Path: "lateness_ms", Kind: output.Millis},
		{Name: "cause"},
		{Name: "subject"},
		{Name: "payload"},
		{Name: "result"},
		{Name: "error"},
		{Name: "attempts", Show: attempts},
		{Name: "dst", Wide: true},
		{Name: "occurrence", Wide: true},
		{Name: "version", Path: "schedule_version", Wide: true},
	},
}

func scheduleOf(o output.Object) string {
	return o.At("workflow").String() + "/" + o.At("key").String()
}

// attempts returns the outcome of each attempt of a tick.
func attempts(o output.Object) string {
	var text string
	for i, a := range o.At("attempts").Items() {
		if i > 0 {
			text += "; "
		}
		text += a.At("attempt").String() + " " + a.At("outcome").String()
		if status := a.At("status"); !status.Null() {
			text += " " + status.String()
		}
		if took := a.At("took_ms"); !took.Null() {
			text += " in " + took.String() + " ms"
		}
		if e := a.At("error"); !e.Null() {
			text += " (" + e.String() + ")"
		}
	}
	if text == "" {
		return o.At("attempt").String()
	}
	return text
}

// upcomingRow is a coming tick.
var upcomingRow = output.Layout{
	Name: []string{"timestamp"},
	Columns: []output.Column{
		{Name: "time", Path: "timestamp", Local: "local_time", Kind: output.Time},
		{Name: "local", Path: "local_time"},
		{Name: "dst"},
	},
}

// operationRow is an operation in a list.
var operationRow = output.Layout{
	Name: []string{"id"},
	Columns: []output.Column{
		{Name: "operation", Path: "id"},
		{Name: "kind"},
		{Name: "state"},
		{Name: "done", Kind: output.Count},
		{Name: "total", Kind: output.Count},
		{Name: "created", Path: "created_at", Kind: output.Time},
		{Name: "by", Path: "created_by"},
		{Name: "ended", Path: "ended_at", Kind: output.Time, Wide: true},
		{Name: "error", Wide: true},
	},
}

// operationCard is one operation.
var operationCard = output.Layout{
	Name: []string{"id"},
	Columns: []output.Column{
		{Name: "operation", Path: "id"},
		{Name: "kind"},
		{Name: "state"},
		{Name: "done", Kind: output.Count},
		{Name: "total", Kind: output.Count},
		{Name: "counts"},
		{Name: "result"},
		{Name: "error"},
		{Name: "params"},
		{Name: "created", Path: "created_at", Kind: output.Time},
		{Name: "by", Path: "created_by"},
		{Name: "started", Path: "started_at", Kind: output.Time},
		{Name: "ended", Path: "ended_at", Kind: output.Time},
	},
}
