package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

var settingsCard = output.Layout{Name: []string{"fallback_timezone"}, Columns: []output.Column{{Name: "fallback_timezone"}, {Name: "operation", Path: "operation.id"}}}

func (c commander) adminSettings() *cobra.Command {
	return c.command(command.Spec{
		Use:     "settings",
		Short:   "Show the settings of the tenant, or change them",
		Example: "  carillon admin settings\n  carillon admin settings --fallback-timezone Europe/Paris",
		Fields: []command.Field{
			{Flag: "fallback-timezone", Pointer: "/fallback_timezone", Value: "ZONE", Help: "the zone of subjects without a profile", From: zoneNames},
			{Flag: "no-fallback-timezone", Pointer: "/fallback_timezone", Kind: command.Bool, Fixed: json.RawMessage("null"), Help: "there is no such zone"},
		},
		Flags: preconditions,
		Run: func(ctx context.Context, s *command.Session) error {
			body, err := s.Body()
			if err != nil {
				return err
			}
			if string(body) == "{}" {
				return s.Show(ctx, api.Request{Path: "/v1/admin/settings"}, settingsCard)
			}
			return s.Show(ctx, api.Request{Method: "PATCH", Path: "/v1/admin/settings", Header: precondition(s), Media: "application/merge-patch+json", Body: body}, settingsCard)
		},
	})
}

var issuerRow = output.Layout{Name: []string{"issuer"}, Columns: []output.Column{
	{Name: "issuer"}, {Name: "jwks_uri"}, {Name: "audience"}, {Name: "algorithms"}, {Name: "set_by"}, {Name: "claims", Wide: true}, {Name: "scopes", Wide: true},
}}

func (c commander) adminIssuers() *cobra.Command {
	return c.command(command.Spec{
		Use:   "issuers",
		Short: "Show the issuers whose tokens the tenant accepts, or replace them",
		Long:  "Shows the issuers whose tokens the tenant accepts. With -f it replaces the tenant's own issuers;\nthose that the platform set stay.",
		Example: `  carillon admin issuers
  carillon admin issuers -f issuers.json --yes    # {"issuers": [{"issuer": …, "jwks_uri": …}]}`,
		File:   true,
		Danger: true,
		Flags:  preconditions,
		Run: func(ctx context.Context, s *command.Session) error {
			r := api.Request{Path: "/v1/admin/issuers"}
			if s.HasFile() {
				body, err := s.Body()
				if err != nil {
					return err
				}
				o, err := output.Read(body)
				if err != nil {
					return err
				}
				if err := s.Confirm(ctx, "Replace the tenant's own issuers by %s? Tokens of the others stop working.", command.Plural(len(o.At("issuers").Items()), "issuer")); err != nil {
					return err
				}
				r.Method, r.Header, r.Body = "PUT", precondition(s), body
			}
			if s.Out.JSON() {
				return s.Show(ctx, r, issuerRow)
			}
			return s.ShowItems(ctx, r, "issuers", issuerRow)
		},
	})
}

var keyNames = command.Names("/v1/admin/api-keys", "", "id")

var keyRow = output.Layout{Name: []string{"id"}, Columns: []output.Column{
	{Name: "id"}, {Name: "name"}, {Name: "scopes"}, {Name: "workflows"}, {Name: "expires", Path: "expires_at", Kind: output.Time},
	{Name: "last_used", Path: "last_used_at", Kind: output.Time}, {Name: "created", Path: "created_at", Kind: output.Time, Wide: true}, {Name: "by", Path: "created_by", Wide: true},
}}

var keyCard = output.Layout{Name: []string{"id"}, Columns: []output.Column{
	{Name: "id"}, {Name: "name"}, {Name: "key"}, {Name: "scopes"}, {Name: "workflows"}, {Name: "expires", Path: "expires_at", Kind: output.Time},
	{Name: "old_key_until", Path: "previous_expires_at", Kind: output.Time},
}}

var tenantScopes = []string{"schedules:read", "schedules:write", "ticks:work", "endpoints:write", "subjects:erase", "tenant:read", "tenant:admin"}

func (c commander) apiKey() *cobra.Command {
	return command.Group("api-key", "Make, rotate and revoke API keys",
		c.command(command.Spec{
			Use:     "list",
			Short:   "List API keys, without their secrets",
			Example: "  carillon admin api-key list\n  carillon admin api-key list -o wide",
			List:    true,
			Run:     func(ctx context.Context, s *command.Session) error { return s.List(ctx, "/v1/admin/api-keys", keyRow) },
		}),
		c.command(command.Spec{
			Use:   "make NAME",
			Short: "Make an API key; its secret is shown only now",
			Example: `  carillon admin api-key make worker --scope schedules:write --scope ticks:work
  carillon admin api-key make ci --scope schedules:write --workflow daily-digest --expires +90d --jq .key`,
			Fields: []command.Field{
				{Flag: "scope", Pointer: "/scopes", Kind: command.Texts, Value: "SCOPE", Help: "what it may do, such as schedules:write; repeatable", Values: tenantScopes},
				{Flag: "workflow", Pointer: "/workflows", Kind: command.Texts, Value: "NAME", Help: "the workflows that it is limited to; repeatable", From: workflowNames},
				{Flag: "expires", Pointer: "/expires_at", Kind: command.Moment, Value: "TIME", Help: "when it stops working (default: never)"},
			},
			Run: func(ctx context.Context, s *command.Session) error {
				body, err := s.BodyWith("name", s.Args[0])
				if err != nil {
					return err
				}
				return s.Show(ctx, api.Request{Method: "POST", Path: "/v1/admin/api-keys", Body: body}, keyCard)
			},
		}),
		c.command(command.Spec{
			Use:     "rotate KEY",
			Short:   "Make a second secret of an API key; the old one works for 24 hours",
			Example: "  carillon admin api-key rotate key_0a1b --jq .key",
			Args:    []command.Completion{keyNames},
			Run: func(ctx context.Context, s *command.Session) error {
				return s.Show(ctx, api.Request{Method: "POST", Path: api.Path("v1", "admin", "api-keys", s.Args[0], "rotate")}, keyCard)
			},
		}),
		c.command(command.Spec{
			Use:     "delete KEY",
			Short:   "Revoke an API key",
			Example: "  carillon admin api-key delete key_0a1b --yes",
			Danger:  true,
			Args:    []command.Completion{keyNames},
			Run: func(ctx context.Context, s *command.Session) error {
				if err := s.Confirm(ctx, "Revoke 1 API key: %s? Programs that use it stop working.", s.Args[0]); err != nil {
					return err
				}
				if _, err := s.API.Do(ctx, api.Request{Method: "DELETE", Path: api.Path("v1", "admin", "api-keys", s.Args[0])}); err != nil {
					return err
				}
				return s.Done(ctx, map[string]any{"result": "deleted", "id": s.Args[0]}, "revoked %s", s.Args[0])
			},
		}),
	)
}
