package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

func (c commander) open() *cobra.Command {
	var print bool
	return c.command(command.Spec{
		Use:   "open",
		Short: "Open the console in your browser, signed in",
		Long: `Asks the server for a code that signs in once within a minute, and opens the console with it.
The address holds no key. Without a browser, --print shows the address.`,
		Example: `  carillon open
  carillon open --profile prod --print`,
		Flags: func(f *pflag.FlagSet) { f.BoolVar(&print, "print", false, "print the address and open no browser") },
		Run: func(ctx context.Context, s *command.Session) error {
			answer, err := s.API.Do(ctx, api.Request{Method: http.MethodPost, Path: "/console/code"})
			if err != nil {
				return err
			}
			var made struct{ Path string }
			if err := json.Unmarshal(answer.Body, &made); err != nil {
				return fmt.Errorf("read the answer of %s: %w", s.Server.URL, err)
			}
			address := strings.TrimRight(s.Server.URL, "/") + made.Path
			if !print && browse(ctx, address) == nil {
				s.Note("opened %s/console in your browser", strings.TrimRight(s.Server.URL, "/"))
				return nil
			}
			if f := s.Out.Format; f == "table" || f == "wide" || f == "name" {
				_, err = fmt.Fprintln(s.Env.Stdout, address)
				return err
			}
			shown, err := json.Marshal(map[string]string{"url": address})
			if err != nil {
				return err
			}
			return s.Out.One(ctx, shown, output.Layout{Columns: []output.Column{{Name: "url"}}})
		},
	})
}

// browse opens an address in the browser of the desktop.
func browse(ctx context.Context, address string) error {
	program := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if program == nil {
		program = []string{"xdg-open"}
	}
	return exec.CommandContext(ctx, program[0], append(program[1:], address)...).Run()
}
