package command

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

// Environment is what commands may use of the process.
type Environment struct {
	Getenv  func(string) string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Version string                                                                         // of this program
	MintDev func(ctx context.Context, url string, platform bool) (token string, err error) // asks a carillon dev for a token
	Now     func() time.Time
}

// terminal reports whether a stream of the process is a terminal, and its width.
func terminal(stream any) (is bool, width int) {
	f, ok := stream.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, 80
	}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		return true, width
	}
	return true, 80
}

// Group returns a command that only holds other commands.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  carillon " + use + " --help",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Misused("there is no command %q", cmd.CommandPath()+" "+args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(commands...)
	return group
}
