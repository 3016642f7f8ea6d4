package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

func (c commander) admin() *cobra.Command {
	return command.Group("admin", "Run a tenant: overview, quotas, API keys, halt and continue",
		c.adminOverview(), c.adminSeries(), c.clockChanges("carillon admin dst"), c.adminHalt(), c.adminContinue(),
		c.adminAudit("/v1/admin/audit", "carillon admin audit"), c.adminUsage(), c.adminQuotas(), c.adminSettings(), c.adminIssuers(), c.apiKey(),
	)
}

var tenantCard = output.Layout{
	Name: []string{"at"},
	Columns: []output.Column{
		{Name: "firing", Show: firing},
		{Name: "schedules", Path: "schedules.total", Kind: output.Count},
		{Name: "active", Path: "schedules.active", Kind: output.Count},
		{Name: "paused", Path: "schedules.paused", Kind: output.Count},
		{Name: "completed", Path: "schedules.completed", Kind: output.Count},
		{Name: "quarantined", Path: "schedules.quarantined", Kind: output.Count},
		{Name: "due_minute", Path: "due.minute", Kind: output.Count},
		{Name: "due_hour", Path: "due.hour", Kind: output.Count},
		{Name: "due_day", Path: "due.day", Kind: output.Count},
		{Name: "waiting", Path: "backlog.ready", Kind: output.Count},
		{Name: "oldest", Path: "backlog.oldest_at", Kind: output.Time},
		{Name: "pushed", Path: "running.pushed", Kind: output.Count},
		{Name: "leased", Path: "running.leased", Kind: output.Count},
		{Name: "p50", Path: "lateness.p50_ms", Kind: output.Millis},
		{Name: "p99", Path: "lateness.p99_ms", Kind: output.Millis},
		{Name: "dead_letters", Path: "failures.dead_letters", Kind: output.Count},
		{Name: "failed_last_hour", Path: "failures.last_hour", Kind: output.Count},
		{Name: "throttled", Show: func(o output.Object) string {
			return each(o.At("throttling"), func(i output.Object) string {
				return i.At("by").String() + " " + i.At("workflow").String() + " " + i.At("waiting").String() + " waiting"
			})
		}},
		{Name: "held", Show: func(o output.Object) string {
			return each(o.At("held"), func(i output.Object) string { return i.At("workflow").String() })
		}},
		{Name: "unmet", Show: func(o output.Object) string {
			return each(o.At("unmet"), func(i output.Object) string { return i.At("workflow").String() + " " + i.At("event").String() })
		}},
		{Name: "workflows", Path: "schedules.workflows", Wide: true},
		{Name: "quotas", Wide: true},
	},
}

func firing(o output.Object) string {
	if halted := o.At("firing.halted_at"); !halted.Null() {
		return "halted since " + halted.String() + " " + o.At("firing.note").String()
	}
	return "yes"
}

func (c commander) adminOverview() *cobra.Command {
	return c.command(command.Spec{
		Use:     "overview",
		Short:   "Show schedules by state, backlog, lateness and failures of the tenant",
		Example: "  carillon admin overview\n  carillon admin overview --jq .lateness.p99_ms",
		Run: func(ctx context.Context, s *command.Session) error {
			return s.Show(ctx, api.Request{Path: "/v1/admin/overview"}, tenantCard)
		},
	})
}

var bucketRow = output.Layout{
	Name: []string{"at"},
	Columns: []output.Column{
		{Name: "at", Kind: output.Time}, {Name: "due", Kind: output.Count}, {Name: "fired", Kind: output.Count},
		{Name: "succeeded", Kind: output.Count}, {Name: "failed", Kind: output.Count}, {Name: "skipped"}, {Name: "missed", Kind: output.Count},
		{Name: "retried", Kind: output.Count}, {Name: "cancelled", Kind: output.Count, Wide: true},
		{Name: "p50", Path: "lateness_ms.p50", Kind: output.Millis}, {Name: "p99", Path: "lateness_ms.p99", Kind: output.Millis},
	},
}

func (c commander) adminSeries() *cobra.Command {
	return c.command(command.Spec{
		Use:     "series",
		Short:   "Show by minute or hour how many ticks fired, and how they ended",
		Example: "  carillon admin series --from -1h\n  carillon admin series --from -7d --step 1h --workflow daily-digest -o csv",
		Fields: []command.Field{
			{Flag: "from", Kind: command.Moment, Value: "TIME", Help: "from this time on"},
			{Flag: "to", Kind: command.Moment, Value: "TIME", Help: "before this time"},
			{Flag: "step", Value: "DURATION", Help: "the length of a bucket"},
			{Flag: "workflow", Value: "NAME", Help: "only this workflow", From: workflowNames},
			{Flag: "endpoint", Value: "NAME", Help: "only this endpoint", From: endpointNames},
		},
		Run: func(ctx context.Context, s *command.Session) error {
			query, err := s.Query()
			if err != nil {
				return err
			}
			r := api.Request{Path: "/v1/admin/series", Query: query}
			switch {
			case s.Out.JSON():
				return s.Show(ctx, r, bucketRow)
			case pictured(s):
				return drawSeries(ctx, s, r)
			}
			return s.ShowItems(ctx, r, "buckets", bucketRow)
		},
	})
}

var firingCard = output.Layout{Name: []string{"halted_at"}, Columns: []output.Column{{Name: "halted", Path: "halted_at", Kind: output.Time}, {Name: "note"}}}

func (c commander) adminHalt() *cobra.Command {
	return c.command(command.Spec{
		Use:     "halt",
		Short:   "Stop all firing of the tenant",
		Long:    "Stops all firing of the tenant, until carillon admin continue.",
		Example: "  carillon admin halt --note \"wrong template\" --yes",
		Danger:  true,
		Fields:  []command.Field{{Flag: "note", Pointer: "/note", Value: "TEXT", Help: "why, for people"}},
		Run: func(ctx context.Context, s *command.Session) error {
			body, err := s.Body()
			if err != nil {
				return err
			}
			if !s.Yes() {
				count, err := schedulesOfTenant(ctx, s)
				if err != nil {
					return err
				}
				if err := s.Confirm(ctx, "Stop all firing of the tenant (%s schedules)?", count); err != nil {
					return err
				}
			}
			return s.Show(ctx, api.Request{Method: "POST", Path: "/v1/admin/halt", Body: body}, firingCard)
		},
	})
}

func schedulesOfTenant(ctx context.Context, s *command.Session) (string, error) {
	answer, err := s.API.Do(ctx, api.Request{Path: "/v1/admin/overview"})
	if err != nil {
		return "", err
	}
	o, err := output.Read(answer.Body)
	return o.At("schedules.total").String(), err
}

func (c commander) adminContinue() *cobra.Command {
	return c.command(command.Spec{
		Use:     "continue",
		Short:   "Let a halted tenant fire again",
		Example: "  carillon admin continue",
		Run: func(ctx context.Context, s *command.Session) error {
			return s.Show(ctx, api.Request{Method: "POST", Path: "/v1/admin/continue"}, firingCard)
		},
	})
}

var auditRow = output.Layout{
	Name: []string{"id"},
	Columns: []output.Column{
		{Name: "at", Kind: output.Time}, {Name: "actor"}, {Name: "action"}, {Name: "target"}, {Name: "remote", Wide: true},
		{Name: "request", Wide: true}, {Name: "before", Wide: true}, {Name: "after", Wide: true}, {Name: "id", Wide: true},
	},
}

// adminAudit is `admin audit`, and `platform audit` too.
func (c commander) adminAudit(path, name string) *cobra.Command {
	return c.command(command.Spec{
		Use:     "audit",
		Short:   "List who changed what, newest first",
		Example: "  " + name + "\n  " + name + " --actor ann --from -7d -o ndjson",
		List:    true,
		Fields: []command.Field{
			{Flag: "actor", Value: "NAME", Help: "by this identity"},
			{Flag: "action", Value: "NAME", Help: "this kind of change"},
			{Flag: "target", Value: "NAME", Help: "of this thing"},
			{Flag: "from", Kind: command.Moment, Value: "TIME", Help: "from this time on"},
			{Flag: "to", Kind: command.Moment, Value: "TIME", Help: "before this time"},
		},
		Run: func(ctx context.Context, s *command.Session) error { return s.List(ctx, path, auditRow) },
	})
}

func (c commander) adminUsage() *cobra.Command {
	return c.command(command.Spec{
		Use:     "usage",
		Short:   "List the ticks of each day, by workflow if you want",
		Example: "  carillon admin usage --from 2026-11-01\n  carillon admin usage --by workflow -o csv",
		List:    true,
		Fields: []command.Field{
			{Flag: "from", Value: "DATE", Help: "from this day on"},
			{Flag: "to", Value: "DATE", Help: "before this day"},
			{Flag: "workflow", Value: "NAME", Help: "only this workflow", From: workflowNames},
			{Flag: "by", Value: "workflow", Help: "a line for each workflow", Values: []string{"workflow"}},
		},
		Run: func(ctx context.Context, s *command.Session) error {
			return s.List(ctx, "/v1/usage", output.Layout{Name: []string{"day"}, Columns: []output.Column{
				{Name: "day"}, {Name: "workflow"}, {Name: "ticks", Kind: output.Count}, {Name: "succeeded", Kind: output.Count},
				{Name: "failed", Kind: output.Count}, {Name: "skipped", Kind: output.Count}, {Name: "missed", Kind: output.Count}, {Name: "cancelled", Kind: output.Count},
			}})
		},
	})
}

var quotaRow = output.Layout{Name: []string{"quota"}, Columns: []output.Column{
	{Name: "quota"}, {Name: "used", Kind: output.Count}, {Name: "limit", Kind: output.Count}, {Name: "share", Show: share}, {Name: "soft"},
}}

// share returns the used part of a quota in percent.
func share(o output.Object) string {
	limit, used := number(o.At("limit")), number(o.At("used"))
	if limit <= 0 || o.At("used").Null() {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(used)/float64(limit))
}

func (c commander) adminQuotas() *cobra.Command {
	return c.command(command.Spec{
		Use:     "quotas",
		Short:   "Show the limits of the tenant, and their use",
		Example: "  carillon admin quotas\n  carillon admin quotas --jq .quotas.schedules",
		Run: func(ctx context.Context, s *command.Session) error {
			r := api.Request{Path: "/v1/quotas"}
			if s.Out.JSON() {
				return s.Show(ctx, r, quotaRow)
			}
			answer, err := s.API.Do(ctx, r)
			if err != nil {
				return err
			}
			rows, err := rowsOf(answer.Body, "quotas", "quota")
			if err != nil {
				return err
			}
			return s.Out.List(ctx, command.Each(rows), quotaRow)
		},
	})
}

// rowsOf turns an object of objects into rows, each with its name as a member.
func rowsOf(text []byte, member, name string) ([]json.RawMessage, error) {
	var body map[string]map[string]map[string]json.RawMessage
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, fmt.Errorf("the answer has no %s: %w", member, err)
	}
	var rows []json.RawMessage
	for _, key := range slices.Sorted(maps.Keys(body[member])) {
		row := body[member][key]
		quoted, err := command.Encode(key)
		if err != nil {
			return nil, err
		}
		row[name] = quoted
		encoded, err := command.Encode(row)
		if err != nil {
			return nil, err
		}
		rows = append(rows, encoded)
	}
	return rows, nil
}
