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
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes of the program, as `carillon --help` lists them.
const (
	exitDone   = 0
	exitFailed = 1
	exitMisuse = 2
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
	fmt.Fprintf(stderr, "carillon: %v\n", err)
	if _, ok := errors.AsType[misuse](err); ok {
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

Exit codes: 0 done, 1 failed, 2 wrong command or setting.`,
		Example: `  carillon dev                          # everything on this machine, without setup
  carillon migrate && carillon serve    # on your own PostgreSQL, named by DATABASE_URL
  carillon doctor                       # report what is wrong, and what to do`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return misuse{err} })
	root.AddCommand(p.dev(), p.serve(), p.migrate(), p.token(), p.keyset(), p.doctor(), p.version())
	return root
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
