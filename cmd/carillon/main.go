// Command carillon is the server and its tools in one binary. `carillon dev` runs everything on a machine without any setup, `carillon
// serve` runs on an existing PostgreSQL, and the other commands migrate, examine and make keys.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/tenants"
)

// The exit codes of the server's commands. The client's commands have more.
const (
	exitDone   = exit.Done
	exitFailed = exit.Failed
	exitMisuse = exit.Misuse
)

func main() {
	if os.Getenv("GOGC") == "" { // most objects are short-lived: half as many collections cost a few tens of MiB
		debug.SetGCPercent(200)
	}
	os.Exit(run(interruptible(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// interruptible returns a context that ends at the first SIGINT or SIGTERM. The second one ends the process at once.
func interruptible() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// program is what every command may use of its environment.
type program struct {
	getenv func(string) string
	stdout io.Writer
	stderr io.Writer
}

// run runs the program and returns its exit code. When it returns, everything that it started has ended.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	root := program{getenv, stdout, stderr}.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errSaid):
		return exitFailed
	}
	e, client := errors.AsType[*exit.Error](err)
	if client && e.Err == nil {
		return e.Code // the command has printed the reason
	}
	fmt.Fprintf(stderr, "carillon: %v\n", err)
	if _, ok := errors.AsType[misuse](err); ok || client && e.Code == exit.Misuse {
		fmt.Fprintf(stderr, "see: %s --help\n", cmd.CommandPath())
		return exitMisuse
	}
	return exitFailed
}

// misuse is a mistake in the arguments or in the environment of the command.
type misuse struct{ error }

// errSaid ends the program with exitFailed. The command has already printed the reason.
var errSaid = errors.New("already reported")

func (p program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "carillon",
		Short: "Schedules that fire on time, in every time zone",
		Long: `Carillon fires schedules on time: put one over HTTP, and each of its ticks is pushed to
your endpoint or leased by your worker. It needs PostgreSQL and nothing else.

` + exit.Help,
		Example: `  carillon dev                          # everything on this machine, without setup
  carillon migrate && carillon serve    # on your own PostgreSQL, named by DATABASE_URL
  carillon doctor                       # report what is wrong, and what to do
  carillon login                        # sign in to a server that runs elsewhere
  carillon schedule list                # what it will fire
  carillon preview "0 8 * * 1-5" --timezone Europe/Paris`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return misuse{err} })
	addGroup(root, "server", "Run a server:", p.dev(), p.serve(), p.migrate(), p.doctor(), p.keyset(), p.token())
	addGroup(root, "client", "Use one:", cli.Commands(p.client())...)
	root.AddCommand(p.version())
	return root
}

func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
	}
	root.AddCommand(commands...)
}

// client returns what the client's commands may use.
func (p program) client() command.Environment {
	return command.Environment{
		Getenv:  p.getenv,
		Stdin:   os.Stdin,
		Stdout:  p.stdout,
		Stderr:  p.stderr,
		Version: thisEdition().Version,
		Now:     time.Now,
		MintDev: func(ctx context.Context, url string, platform bool) (string, error) {
			ask := tokenRequest{Tenant: demoTenant, Scope: strings.Join(tenants.TenantScopes(), " "), TTL: "1h"}
			if platform {
				ask.Tenant, ask.Scope = "", tenants.PlatformAdmin
			}
			token, err := askDev(ctx, url, ask)
			if err != nil {
				err = &exit.Error{Code: exit.TimedOut, Err: err, Remedy: "start it: carillon dev; or choose another server: carillon profile list"}
			}
			return token, err
		},
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return misuse{fmt.Errorf("there is no command %q", args[0])}
	}
	return misuse{fmt.Errorf("%s takes no argument such as %q, only flags", cmd.CommandPath(), args[0])}
}
