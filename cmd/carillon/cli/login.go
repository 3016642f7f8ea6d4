package cli

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
	"github.com/carillonhq/carillon/cmd/carillon/cli/profile"
)

var selfCard = output.Layout{
	Name: []string{"actor"},
	Columns: []output.Column{
		{Name: "tenant"},
		{Name: "actor"},
		{Name: "scopes"},
		{Name: "workflows", Show: func(o output.Object) string {
			if o.At("workflows").Null() {
				return "all"
			}
			return o.At("workflows").String()
		}},
		{Name: "expires", Path: "expires_at", Kind: output.Time},
		{Name: "quotas", Wide: true},
	},
}

func (c commander) whoami() *cobra.Command {
	return c.command(command.Spec{
		Use:   "whoami",
		Short: "Show the server, the tenant and the scopes of your credential",
		Example: `  carillon whoami
  carillon whoami --profile prod --jq .scopes`,
		Run: func(ctx context.Context, s *command.Session) error {
			from := s.Server.From
			if from == "" {
				from = "nowhere: you are not signed in"
			}
			s.Note("%s, with the credential from %s", s.Server.URL, from)
			return s.Show(ctx, api.Request{Path: "/v1/self"}, selfCard)
		},
	})
}

func (c commander) login() *cobra.Command {
	return c.command(command.Spec{
		Use:   "login",
		Short: "Sign in to a server with an API key",
		Long: `Asks for an API key (or reads it from standard input), checks it, and keeps it in the keychain
of this machine under a profile. The profile becomes the current one.

No flag takes the key, because other users of the machine can read command lines.`,
		Example: `  carillon login --url https://carillon.example.com
  carillon login --profile prod --url https://carillon.example.com < key.txt`,
		Offline: true,
		Flags: func(f *pflag.FlagSet) {
			f.String("url", "", "the `URL` of the server; without it the profile's, or CARILLON_URL")
		},
		Run: func(ctx context.Context, s *command.Session) error {
			name, p, err := s.LoginProfile()
			if err != nil {
				return err
			}
			key, err := s.Secret(ctx, "API key for "+p.URL+": ")
			if err != nil {
				return err
			}
			if key == "" {
				return exit.Misused("there is no API key on standard input")
			}
			self, err := verify(ctx, s, p.URL, key)
			if err != nil {
				return err
			}
			if p.Tenant, err = tenantOf(self); err != nil {
				return err
			}
			if err := keep(s, name, p, key); err != nil {
				return err
			}
			s.Note("signed in to %s as profile %s", p.URL, name)
			return s.Out.One(ctx, self, selfCard)
		},
	})
}

// verify asks the server who the key belongs to.
func verify(ctx context.Context, s *command.Session, url, key string) ([]byte, error) {
	s.Server = command.Server{URL: url, From: "the key that you entered", Credential: func(context.Context) (string, error) { return key, nil }}
	s.API = s.Client(s.Server)
	answer, err := s.API.Do(ctx, api.Request{Path: "/v1/self"})
	return answer.Body, err
}

func tenantOf(self []byte) (string, error) {
	o, err := output.Read(self)
	return o.At("tenant").String(), err
}

// keep stores the key, and makes the profile the current one.
func keep(s *command.Session, name string, p profile.Profile, key string) error {
	path, err := s.ConfigPath()
	if err != nil {
		return err
	}
	stored, warning := s.Keychain().Store(name, p, key)
	if warning != nil {
		s.Note("warning: %v; the key is kept in %s, which only you can read", warning, path)
	}
	return profile.Change(path, func(c *profile.Config) error {
		c.Profiles[name], c.Current = stored, name
		return nil
	})
}
