package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

var workflows = resource{
	noun: "workflow", argument: "WORKFLOW", path: "/v1/workflows", name: "name", sample: "daily-digest", complete: workflowNames,
	row: output.Layout{Columns: []output.Column{
		{Name: "name"}, {Name: "state"}, {Name: "delivery", Path: "endpoint", Show: delivery}, {Name: "version"},
		{Name: "rate", Path: "rate.per_second"}, {Name: "max_running"}, {Name: "updated", Path: "updated_at", Kind: output.Time, Wide: true},
	}},
	card: output.Layout{Columns: []output.Column{
		{Name: "name"}, {Name: "state"}, {Name: "delivery", Path: "endpoint", Show: delivery}, {Name: "version"}, {Name: "rate"},
		{Name: "max_running"}, {Name: "expect"}, {Name: "fallback_timezone"}, {Name: "defaults"},
		{Name: "created", Path: "created_at", Kind: output.Time}, {Name: "updated", Path: "updated_at", Kind: output.Time},
	}},
}

// delivery says how the ticks of a workflow reach their worker.
func delivery(o output.Object) string {
	if o.At("endpoint").Null() {
		return "leased by workers"
	}
	return "pushed to " + o.At("endpoint").String()
}

var workflowFields = []command.Field{
	{Flag: "endpoint", Pointer: "/endpoint", Value: "NAME", Help: "the endpoint to which ticks are pushed; without it workers lease them", From: endpointNames},
	{Flag: "pulled", Pointer: "/endpoint", Kind: command.Bool, Fixed: json.RawMessage("null"), Help: "workers lease the ticks: no endpoint"},
	{Flag: "version", Pointer: "/version", Value: "TEXT", Help: "the version of the program that handles the ticks"},
	{Flag: "max-running", Pointer: "/max_running", Kind: command.Number, Value: "N", Help: "how many ticks may run at a time"},
	{Flag: "rate", Pointer: "/rate/per_second", Kind: command.Number, Value: "N", Help: "how many ticks fire per second at most"},
	{Flag: "ramp", Pointer: "/rate/ramp", Value: "DURATION", Help: "the time in which the rate rises after a pause"},
	{Flag: "expect-handed-out", Pointer: "/expect/handed_out_within", Value: "DURATION", Help: "a tick handed out later raises workflow.late"},
	{Flag: "expect-ended", Pointer: "/expect/ended_within", Value: "DURATION", Help: "a tick that ends later raises workflow.late"},
	{Flag: "fallback-timezone", Pointer: "/fallback_timezone", Value: "ZONE", Help: "the zone of subjects without a profile", From: zoneNames},
	{Flag: "default-policy", Pointer: "/defaults/policy", Kind: command.JSON, Value: "JSON", Help: "the policy of schedules that set none"},
	{Flag: "default-delivery", Pointer: "/defaults/delivery", Kind: command.JSON, Value: "JSON", Help: "the delivery of schedules that set none"},
}

func (c commander) workflow() *cobra.Command {
	return command.Group("workflow", "Register, hold and delete workflows",
		c.list(workflows, nil, "  carillon workflow list\n  carillon workflow list -o name"),
		c.get(workflows),
		c.put(workflows, command.Spec{
			Short:  "Register a workflow, or replace its registration",
			Fields: workflowFields,
			Example: `  carillon workflow put daily-digest --endpoint mailer --rate 200
  carillon workflow put daily-digest -f workflow.yaml`,
		}),
		c.edit(workflows, command.Spec{
			Short:  "Change members of a workflow's registration",
			Fields: workflowFields,
			Example: `  carillon workflow edit daily-digest --rate 500
  carillon workflow edit daily-digest --pulled`,
		}),
		c.delete(workflows, "A workflow with schedules is refused."),
		c.act(workflows, command.Spec{
			Use:     "hold WORKFLOW",
			Short:   "Stop handing out the ticks of a workflow",
			Long:    "Stops handing out the ticks of a workflow. Nothing is lost: they wait until carillon workflow\nrelease.",
			Example: "  carillon workflow hold daily-digest",
		}, "hold", workflows.card),
		c.act(workflows, command.Spec{
			Use:     "release WORKFLOW",
			Short:   "Hand out the ticks of a held workflow again",
			Example: "  carillon workflow release daily-digest",
		}, "release", workflows.card),
	)
}
