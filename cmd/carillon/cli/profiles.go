package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
	"github.com/carillonhq/carillon/cmd/carillon/cli/profile"
)

// profileRow is a profile without its secret.
var profileRow = output.Layout{Name: []string{"name"}, Columns: []output.Column{
	{Name: "name"}, {Name: "current"}, {Name: "url"}, {Name: "tenant"}, {Name: "sign_in"}, {Name: "secret_in"},
}}

func (c commander) profile() *cobra.Command {
	return command.Group("profile", "Choose between servers that you have signed in to",
		c.command(command.Spec{
			Use:     "list",
			Short:   "List the profiles",
			Example: "  carillon profile list",
			Offline: true,
			Run:     listProfiles,
		}),
		c.command(command.Spec{
			Use:     "use PROFILE",
			Short:   "Make a profile the one that commands use",
			Example: "  carillon profile use prod",
			Offline: true,
			Args:    []command.Completion{profileNames},
			Run: func(ctx context.Context, s *command.Session) error {
				return changeProfile(ctx, s, func(c *profile.Config, p profile.Profile) (profile.Profile, error) {
					c.Current = s.Args[0]
					return p, nil
				}, "commands now use")
			},
		}),
		c.profileSet(), c.profileRemove(), c.profileEnv(),
	)
}

// load returns the profiles and the path of their file.
func load(s *command.Session) (profile.Config, string, error) {
	path, err := s.ConfigPath()
	if err != nil {
		return profile.Config{}, "", err
	}
	config, err := profile.Load(path)
	return config, path, err
}

func profileNames(_ context.Context, s *command.Session, _ string) []string {
	config, _, err := load(s)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(config.Profiles))
}

// shown is a profile as `profile list` prints it.
func shown(config profile.Config, name string) (json.RawMessage, error) {
	p := config.Profiles[name]
	secret := ""
	switch {
	case p.Keychain != "":
		secret = "keychain"
	case p.APIKey != "":
		secret = "file"
	}
	return command.Encode(struct {
		Name     string         `json:"name"`
		Current  bool           `json:"current"`
		URL      string         `json:"url"`
		Tenant   string         `json:"tenant,omitempty"`
		SignIn   profile.SignIn `json:"sign_in,omitempty"`
		SecretIn string         `json:"secret_in,omitempty"`
		Program  string         `json:"program,omitempty"`
	}{name, name == config.Current, p.URL, p.Tenant, p.SignIn, secret, p.Program})
}

func listProfiles(ctx context.Context, s *command.Session) error {
	config, path, err := load(s)
	if err != nil {
		return err
	}
	if len(config.Profiles) == 0 {
		s.Note("there are no profiles in %s; carillon login makes one", path)
	}
	var rows []json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(config.Profiles)) {
		row, err := shown(config, name)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return s.Out.List(ctx, command.Each(rows), profileRow)
}

// changeProfile changes the profile that the first argument names, and prints it.
func changeProfile(ctx context.Context, s *command.Session, change func(*profile.Config, profile.Profile) (profile.Profile, error), done string) error {
	name := s.Args[0]
	path, err := s.ConfigPath()
	if err != nil {
		return err
	}
	var row json.RawMessage
	err = profile.Change(path, func(c *profile.Config) error {
		p, known := c.Profiles[name]
		if !known {
			return noProfile(name)
		}
		if p, err = change(c, p); err != nil {
			return err
		}
		c.Profiles[name] = p
		row, err = shown(*c, name)
		return err
	})
	if err != nil {
		return err
	}
	s.Note("%s profile %s", done, name)
	return s.Out.One(ctx, row, profileRow)
}

func noProfile(name string) error {
	return &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("there is no profile %q", name), Remedy: "carillon profile list shows the profiles"}
}

func (c commander) profileSet() *cobra.Command {
	var url, program string
	return c.command(command.Spec{
		Use:   "set PROFILE",
		Short: "Create a profile, or change its URL or the program that prints its token",
		Long: `Creates a profile, or changes it. --token-command is a command line that prints a token of your own
issuer; the shell runs it once for each command. An API key is set by carillon login.`,
		Example: `  carillon profile set prod --url https://carillon.example.com
  carillon profile set prod --token-command "gcloud auth print-identity-token"`,
		Offline: true,
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&url, "url", "", "the `URL` of the server; another one signs the profile out")
			f.StringVar(&program, "token-command", "", "the `COMMAND` that prints a token")
		},
		Args: []command.Completion{profileNames},
		Run: func(ctx context.Context, s *command.Session) error {
			name := s.Args[0]
			if err := profile.CheckName(name); err != nil {
				return exit.Misused("%w", err)
			}
			config, path, err := load(s)
			if err != nil {
				return err
			}
			if _, known := config.Profiles[name]; !known {
				if url == "" {
					return exit.Misused("a new profile needs --url")
				}
				if err := profile.Change(path, func(c *profile.Config) error {
					c.Profiles[name] = profile.Profile{URL: url}
					return nil
				}); err != nil {
					return err
				}
			}
			return changeProfile(ctx, s, func(_ *profile.Config, p profile.Profile) (profile.Profile, error) {
				return setProfile(s, p, url, program)
			}, "set")
		},
	})
}

// setProfile changes the members that are given. A credential is never sent to another URL than the one it was entered for.
func setProfile(s *command.Session, p profile.Profile, url, program string) (profile.Profile, error) {
	if url != "" {
		if err := command.CheckURL(url); err != nil {
			return p, err
		}
		if url != p.URL {
			forgotten, err := s.Keychain().Forget(p)
			if err != nil {
				s.Note("warning: %v", err)
			}
			p, p.Tenant = forgotten, ""
		}
		p.URL = url
	}
	if program != "" {
		forgotten, err := s.Keychain().Forget(p)
		if err != nil {
			s.Note("warning: %v", err)
		}
		p = forgotten
		p.SignIn, p.Program = profile.SignInProgram, program
	}
	return p, nil
}

func (c commander) profileRemove() *cobra.Command {
	return c.command(command.Spec{
		Use:     "remove PROFILE",
		Short:   "Remove a profile and its API key from this machine",
		Example: "  carillon profile remove prod --yes",
		Offline: true,
		Danger:  true,
		Args:    []command.Completion{profileNames},
		Run: func(ctx context.Context, s *command.Session) error {
			name := s.Args[0]
			config, path, err := load(s)
			if err != nil {
				return err
			}
			p, known := config.Profiles[name]
			if !known {
				return noProfile(name)
			}
			if err := s.Confirm(ctx, "Remove 1 profile: %s (%s)?", name, p.URL); err != nil {
				return err
			}
			if _, err := s.Keychain().Forget(p); err != nil {
				s.Note("warning: %v", err)
			}
			err = profile.Change(path, func(c *profile.Config) error {
				delete(c.Profiles, name)
				if c.Current == name {
					c.Current = ""
				}
				return nil
			})
			if err != nil {
				return err
			}
			return s.Done(ctx, map[string]any{"result": "removed", "name": name}, "removed profile %s", name)
		},
	})
}

func (c commander) logout() *cobra.Command {
	return c.command(command.Spec{
		Use:     "logout",
		Short:   "Remove the credential of a profile from this machine",
		Long:    "Removes the credential of the current profile, or of --profile, from this machine. The API key\nitself stays valid: carillon admin api-key delete revokes it.",
		Example: "  carillon logout\n  carillon logout --profile prod",
		Offline: true,
		Run: func(ctx context.Context, s *command.Session) error {
			name, err := s.ChosenProfile()
			if err != nil {
				return err
			}
			s.Args = []string{name}
			return changeProfile(ctx, s, func(_ *profile.Config, p profile.Profile) (profile.Profile, error) {
				forgotten, err := s.Keychain().Forget(p)
				if err != nil {
					return p, fmt.Errorf("remove the API key from the keychain: %w", err)
				}
				return forgotten, nil
			}, "signed out of")
		},
	})
}
