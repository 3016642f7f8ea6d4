package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

var endpoints = resource{
	noun: "endpoint", argument: "ENDPOINT", path: "/v1/endpoints", name: "name", sample: "mailer", complete: endpointNames,
	row: output.Layout{Columns: []output.Column{
		{Name: "name"}, {Name: "state"}, {Name: "url"}, {Name: "batch"}, {Name: "rate", Path: "rate.per_second"},
		{Name: "events", Wide: true}, {Name: "updated", Path: "updated_at", Kind: output.Time, Wide: true},
	}},
	card: output.Layout{Columns: []output.Column{
		{Name: "name"}, {Name: "state"}, {Name: "url"}, {Name: "secret"}, {Name: "batch"}, {Name: "headers"}, {Name: "rate"}, {Name: "events"},
		{Name: "created", Path: "created_at", Kind: output.Time}, {Name: "updated", Path: "updated_at", Kind: output.Time},
	}},
}

var endpointFields = []command.Field{
	{Flag: "url", Pointer: "/url", Value: "URL", Help: "where the ticks are posted"},
	{Flag: "batch", Pointer: "/batch", Kind: command.Number, Value: "N", Help: "how many ticks one request carries at most, 1 to 500"},
	{Flag: "headers-file", Pointer: "/headers", Kind: command.JSON, Value: "@FILE", Help: "a JSON object of headers to send; a file, because their values can be secrets"},
	{Flag: "rate", Pointer: "/rate/per_second", Kind: command.Number, Value: "N", Help: "how many ticks are sent per second at most"},
	{Flag: "ramp", Pointer: "/rate/ramp", Value: "DURATION", Help: "the time in which the rate rises after a pause"},
	{Flag: "event", Pointer: "/events", Kind: command.Texts, Value: "NAME", Help: "an event to send too, such as tick.failed; repeatable"},
	{Flag: "state", Pointer: "/state", Value: "STATE", Help: "enabled, held or disabled", Values: []string{"enabled", "held", "disabled"}},
}

func (c commander) endpoint() *cobra.Command {
	return command.Group("endpoint", "Create, test and repair endpoints, to which ticks are pushed",
		c.list(endpoints, nil, "  carillon endpoint list\n  carillon endpoint list -o wide"),
		c.get(endpoints),
		c.put(endpoints, command.Spec{
			Short:  "Create an endpoint, or replace it",
			Long:   "Creates an endpoint, or replaces it. The answer to the request that creates it has the signing\nsecret; it is shown only then.",
			Fields: endpointFields,
			Example: `  carillon endpoint put mailer --url https://mail.example.com/ticks
  carillon endpoint put mailer --url https://mail.example.com/ticks --batch 100 --event tick.failed`,
		}),
		c.edit(endpoints, command.Spec{
			Short:   "Change members of an endpoint",
			Fields:  endpointFields,
			Example: "  carillon endpoint edit mailer --rate 50",
		}),
		c.delete(endpoints, "An endpoint that a workflow uses is refused."),
		c.act(endpoints, command.Spec{
			Use:     "test ENDPOINT",
			Short:   "Send one signed test tick",
			Example: "  carillon endpoint test mailer",
		}, "test", output.Layout{Name: []string{"webhook_id"}, Columns: []output.Column{
			{Name: "webhook", Path: "webhook_id"}, {Name: "status"}, {Name: "took", Path: "took_ms", Kind: output.Millis}, {Name: "error"},
		}}),
		c.act(endpoints, command.Spec{
			Use:     "rotate ENDPOINT",
			Short:   "Make a second signing secret; the old one stays valid beside it",
			Example: "  carillon endpoint rotate mailer --jq .secret",
			Fields:  []command.Field{{Flag: "force", Kind: command.Bool, Help: "even if the last rotation was a short time ago"}},
		}, "secrets", endpoints.card),
		c.endpointHealth(),
		c.endpointState("hold", "held", "Stop sending to an endpoint; its ticks wait"),
		c.endpointState("enable", "enabled", "Send to a held or disabled endpoint again"),
	)
}

func (c commander) endpointState(verb, state, short string) *cobra.Command {
	return c.command(command.Spec{
		Use:     verb + " ENDPOINT",
		Short:   short,
		Example: "  carillon endpoint " + verb + " mailer",
		Args:    []command.Completion{endpointNames},
		Run: func(ctx context.Context, s *command.Session) error {
			body := []byte(`{"state": "` + state + `"}`)
			return s.Show(ctx, api.Request{Method: "PATCH", Path: endpoints.at(s), Media: "application/merge-patch+json", Body: body}, endpoints.card)
		},
	})
}

var healthCard = output.Layout{
	Name: []string{"state"},
	Columns: []output.Column{
		{Name: "state"}, {Name: "breaker"}, {Name: "open_until", Kind: output.Time}, {Name: "queued", Kind: output.Count}, {Name: "in_flight", Kind: output.Count},
		{Name: "hour", Show: lastHour}, {Name: "last", Show: lastAnswers}, {Name: "minutes", Wide: true},
	},
}

func (c commander) endpointHealth() *cobra.Command {
	return c.command(command.Spec{
		Use:     "health ENDPOINT",
		Short:   "Show the breaker, the queue and the last answers of an endpoint",
		Example: "  carillon endpoint health mailer\n  carillon endpoint health mailer --jq .breaker",
		Args:    []command.Completion{endpointNames},
		Run: func(ctx context.Context, s *command.Session) error {
			return s.Show(ctx, api.Request{Path: endpoints.at(s, "health")}, healthCard)
		},
	})
}
