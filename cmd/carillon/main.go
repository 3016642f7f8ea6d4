// Command carillon is the whole of Carillon in one binary: `carillon dev` for a machine where nothing is set up,
// `carillon serve` for one where a database is, and the tools around them.
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

// How the program ends, as `carillon --help` says.
const (
	exitDone   = 0
	exitFailed = 1
	exitMisuse = 2
)

func main() {
	if os.Getenv("GOGC") == "" { // little lives long here: collecting half as often takes a few tens of MiB
		debug.SetGCPercent(200)
	}
	os.Exit(run(interruptible(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// interruptible returns a context that ends with the first signal to end; the second ends the process at once.
func interruptible() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// program is what every command may use of the world.
type program struct {
	getenv func(string) string
	stdout io.Writer
	stderr io.Writer
}

// run is the program without a process around it: it returns when all that it started has ended.
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

// misuse is an error of whoever typed the command or set its environment.
type misuse struct{ error }

// errSaid ends the program with exitFailed where the command has said why already.
var errSaid = errors.New("said already")

func (p program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "carillon",
		Short: "Schedules that fire on time, in every time zone",
		Long: `Carillon fires schedules on time: put one over HTTP, and each of its ticks is pushed to
your endpoint or leased by your worker. It needs PostgreSQL and nothing else.

Exit codes: 0 done, 1 failed, 2 the command or a setting was not understood.`,
		Example: `  carillon dev                          # everything on this machine, nothing to set up
  carillon migrate && carillon serve    # on your own PostgreSQL, named by DATABASE_URL
  carillon doctor                       # what is wrong here, and what to do about it`,
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
