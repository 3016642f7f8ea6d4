package cli

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

var tenantList = resource{
	noun: "tenant", argument: "TENANT", path: "/v1/platform/tenants", name: "name", sample: "acme",
	complete: command.Names("/v1/platform/tenants", "", "name"),
	row: output.Layout{Columns: []output.Column{
		{Name: "name"}, {Name: "status"}, {Name: "schedules", Path: "quotas.schedules", Kind: output.Count},
		{Name: "ticks_per_second", Path: "quotas.ticks_per_second", Kind: output.Count}, {Name: "created", Path: "created_at", Kind: output.Time}, {Name: "issuers", Wide: true},
	}},
	card: output.Layout{Columns: []output.Column{
		{Name: "name"}, {Name: "status"}, {Name: "quotas"}, {Name: "issuers"}, {Name: "created", Path: "created_at", Kind: output.Time}, {Name: "updated", Path: "updated_at", Kind: output.Time},
	}},
}

func (c commander) platform() *cobra.Command {
	tenants := tenantList
	tenants.noun = "platform tenant"
	return command.Group("platform", "Run the service: tenants, processes and use (scope platform:admin)",
		command.Group("tenant", "Create, change and erase tenants",
			c.list(tenants, nil, "  carillon platform tenant list\n  carillon platform tenant list -o name"),
			c.get(tenants),
			c.tenantPut(tenants),
			c.tenantErase(),
		),
		c.platformOverview(), c.platformUsage(), c.adminAudit("/v1/platform/audit", "carillon platform audit"),
	)
}

func (c commander) tenantPut(r resource) *cobra.Command {
	var quotas []string
	return c.command(command.Spec{
		Use:   "put TENANT",
		Short: "Create a tenant, or change members of it",
		Long: `Creates a tenant if there is none of this name. Otherwise it changes the members that the flags
name, and leaves the others. With -f the file is the whole tenant.`,
		Example: `  carillon platform tenant put acme --quota schedules=1000000 --quota ticks_per_second=5000
  carillon platform tenant put acme --status suspended
  carillon platform tenant put acme -f acme.yaml`,
		File: true,
		Fields: []command.Field{
			{Flag: "status", Pointer: "/status", Value: "STATUS", Help: "active or suspended", Values: []string{"active", "suspended"}},
			{Flag: "issuers", Pointer: "/issuers", Kind: command.JSON, Value: "JSON", Help: "the issuers of its tokens, as an array; @FILE reads a file"},
		},
		Flags: func(f *pflag.FlagSet) {
			f.StringArrayVar(&quotas, "quota", nil, "a limit as `NAME=NUMBER`; NAME= is the default again; repeatable")
			preconditions(f)
		},
		Args: []command.Completion{r.complete},
		Run: func(ctx context.Context, s *command.Session) error {
			body, err := s.Body()
			if err != nil {
				return err
			}
			if len(quotas) > 0 {
				limits, err := quotasOf(quotas)
				if err != nil {
					return err
				}
				if body, err = s.BodyWith("quotas", limits); err != nil {
					return err
				}
			}
			answer, err := putTenant(ctx, s, r, body)
			if err != nil {
				return err
			}
			return stored1(ctx, s, r, answer)
		},
	})
}

// putTenant replaces the tenant by a file. Flags alone change a tenant that exists, because a PUT would reset what they do not name.
func putTenant(ctx context.Context, s *command.Session, r resource, body []byte) (api.Answer, error) {
	header := precondition(s)
	if !s.HasFile() && header["If-None-Match"] == "" {
		answer, err := s.API.Do(ctx, api.Request{Method: "PATCH", Path: r.at(s), Header: header, Media: "application/merge-patch+json", Body: body})
		if !api.HasStatus(err, 404) {
			return answer, err
		}
	}
	return s.API.Do(ctx, api.Request{Method: "PUT", Path: r.at(s), Header: header, Body: body})
}

func quotasOf(texts []string) (map[string]any, error) {
	limits := map[string]any{}
	for _, text := range texts {
		name, limit, found := strings.Cut(text, "=")
		if _, err := strconv.ParseInt(limit, 10, 64); !found || limit != "" && err != nil {
			return nil, exit.Misused("--quota %s is not NAME=NUMBER", text)
		}
		if limits[name] = json.RawMessage(limit); limit == "" {
			limits[name] = nil
		}
	}
	return limits, nil
}

func (c commander) tenantErase() *cobra.Command {
	return c.command(command.Spec{
		Use:     "erase TENANT",
		Short:   "Erase a tenant and all its data",
		Long:    "Erases a tenant and all its data. It cannot be undone.",
		Example: "  carillon platform tenant erase acme --confirm acme",
		Confirm: "TENANT",
		Flags:   preconditions,
		Args:    []command.Completion{tenantList.complete},
		Run: func(ctx context.Context, s *command.Session) error {
			name := s.Args[0]
			if err := s.ConfirmName(ctx, name, "1 tenant, %s, and all its data will be erased.", name); err != nil {
				return err
			}
			answer, err := s.API.Do(ctx, api.Request{Method: "DELETE", Path: tenantList.at(s), Header: precondition(s)})
			if err != nil {
				return err
			}
			if answer.Status == 204 {
				return s.Done(ctx, map[string]any{"result": "erased", "name": name}, "erased tenant %s", name)
			}
			return s.Out.One(ctx, answer.Body, output.Layout{Columns: []output.Column{{Name: "name"}, {Name: "status"}, {Name: "erasing", Path: "erasing_at", Kind: output.Time}}})
		},
	})
}

func (c commander) platformOverview() *cobra.Command {
	return c.command(command.Spec{
		Use:     "overview",
		Short:   "Show processes, backlog and queues of the service",
		Example: "  carillon platform overview\n  carillon platform overview --jq '.processes[].version'",
		Run: func(ctx context.Context, s *command.Session) error {
			return s.Show(ctx, api.Request{Path: "/v1/platform/overview"}, output.Layout{Name: []string{"at"}, Columns: []output.Column{
				{Name: "due", Kind: output.Count}, {Name: "oldest_due", Path: "oldest_due_age_ms", Kind: output.Millis}, {Name: "unopened", Kind: output.Count},
				{Name: "queues"}, {Name: "broken_promises", Kind: output.Count}, {Name: "tenants"},
				{Name: "processes", Show: func(o output.Object) string {
					return each(o.At("processes"), func(i output.Object) string {
						return i.At("name").String() + " " + i.At("version").String() + " (" + i.At("roles").String() + ")"
					})
				}},
			}})
		},
	})
}

func (c commander) platformUsage() *cobra.Command {
	return c.command(command.Spec{
		Use:     "usage",
		Short:   "List the use of all tenants on a day",
		Example: "  carillon platform usage --day 2026-11-23 -o csv",
		List:    true,
		Fields:  []command.Field{{Flag: "day", Value: "DATE", Help: "the day (default: today)"}},
		Run: func(ctx context.Context, s *command.Session) error {
			return s.List(ctx, "/v1/platform/usage", output.Layout{Name: []string{"tenant"}, Columns: []output.Column{
				{Name: "tenant"}, {Name: "day"}, {Name: "ticks", Kind: output.Count}, {Name: "succeeded", Kind: output.Count}, {Name: "failed", Kind: output.Count},
				{Name: "schedules", Kind: output.Count}, {Name: "subjects", Kind: output.Count}, {Name: "stored", Path: "stored_bytes", Kind: output.Bytes},
			}})
		},
	})
}
