package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// serverVariables are the variables that the SDK reads.
type serverVariables struct {
	URL    string `json:"CARILLON_URL"`
	APIKey string `json:"CARILLON_API_KEY"`
}

func (c commander) profileEnv() *cobra.Command {
	return c.command(command.Spec{
		Use:   "env",
		Short: "Print the server and its credential as variables for a program",
		Long: `Prints CARILLON_URL and CARILLON_API_KEY, for a program that uses the SDK and is started from a
shell. The output holds a secret: the API key or the token of the profile.`,
		Example: `  eval "$(carillon profile env)"
  carillon profile env --profile prod --jq .CARILLON_URL`,
		Run: func(ctx context.Context, s *command.Session) error {
			if s.Server.Credential == nil {
				return &exit.Error{Code: exit.NotAllowed, Err: errors.New("you are not signed in"), Remedy: "carillon login"}
			}
			secret, err := s.Server.Credential(ctx)
			if err != nil {
				return err
			}
			if s.Out.Format == "table" || s.Out.Format == "wide" {
				_, err = fmt.Fprintf(s.Env.Stdout, "export CARILLON_URL=%s\nexport CARILLON_API_KEY=%s\n", quoted(s.Server.URL), quoted(secret))
				return err
			}
			text, err := command.Encode(serverVariables{s.Server.URL, secret})
			if err != nil {
				return err
			}
			return s.Out.One(ctx, text, output.Layout{Name: []string{"CARILLON_URL"}, Columns: []output.Column{{Name: "CARILLON_URL"}, {Name: "CARILLON_API_KEY"}}})
		},
	})
}

// quoted returns a text as one word of a POSIX shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
