package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

// Spec describes one command.
type Spec struct {
	Use     string // the name and the arguments: "get WORKFLOW/KEY"; an argument in brackets is optional
	Aliases []string
	Short   string
	Long    string
	Example string
	Fields  []Field
	File    bool                       // it has -f FILE, the request's body as JSON or YAML
	List    bool                       // it has --limit
	Danger  bool                       // it has --yes and asks before it acts
	Confirm string                     // it has --confirm, which must repeat this argument: "TENANT"
	Offline bool                       // it needs no server: the session has no API
	Flags   func(flags *pflag.FlagSet) // nil, or adds flags that are no fields
	Check   func(s *Session) error     // nil, or refuses combinations of flags before a request is sent
	Run     func(ctx context.Context, s *Session) error
	Args    []Completion // of each argument, in order; nil entries complete nothing
}

// Completion returns the candidates for an argument that begins with the text that the user has typed.
type Completion func(ctx context.Context, s *Session, typed string) []string

// New returns the command that a spec describes.
func New(e Environment, spec Spec) *cobra.Command {
	names := strings.Fields(spec.Use)[1:]
	cmd := &cobra.Command{
		Use:     spec.Use,
		Aliases: spec.Aliases,
		Short:   spec.Short,
		Long:    spec.Long,
		Example: spec.Example,
		Args:    func(cmd *cobra.Command, args []string) error { return countArgs(cmd, names, args) },
	}
	if cmd.Long == "" {
		cmd.Long = spec.Short + "."
	}
	o := &options{}
	cmd.Flags().SortFlags = false
	given := map[string]*values{}
	for _, field := range spec.Fields {
		given[field.Flag] = field.register(cmd.Flags())
	}
	if spec.Flags != nil {
		spec.Flags(cmd.Flags())
	}
	o.registerOwn(cmd, spec)
	o.registerCommon(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := newSession(e, cmd, spec, o, args)
		if err == nil {
			s.given = given
			err = spec.run(s)
		}
		return report(cmd.Context(), s, err)
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(spec.Args) || spec.Args[len(args)] == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(e, cmd, o, spec.Args[len(args)], args, typed), cobra.ShellCompDirectiveNoFileComp
	}
	completeFlags(e, cmd, spec, o)
	return cmd
}

func (spec Spec) run(s *Session) error {
	if err := s.checkClock(s.Command.Context()); err != nil {
		return err
	}
	if spec.Check != nil {
		if err := spec.Check(s); err != nil {
			return err
		}
	}
	return spec.Run(s.Command.Context(), s)
}

// countArgs returns an error that names the argument that is missing or too much.
func countArgs(cmd *cobra.Command, names, args []string) error {
	required, most := 0, len(names)
	for _, name := range names {
		if strings.HasSuffix(name, "...") || strings.HasSuffix(name, "...]") {
			most = len(args)
		}
		if !strings.HasPrefix(name, "[") {
			required++
		}
	}
	if len(args) < required {
		return exit.Misused("%s needs %s", cmd.CommandPath(), strings.TrimSuffix(names[len(args)], "..."))
	}
	if len(args) > most {
		if most == 0 {
			return exit.Misused("%s takes no argument such as %q, only flags", cmd.CommandPath(), args[0])
		}
		return exit.Misused("%s takes %d argument%s, and %q is too much", cmd.CommandPath(), most, plural(most), args[most])
	}
	return nil
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// Plural returns a number with its noun: 1 schedule, 2 schedules.
func Plural(n int, noun string) string { return fmt.Sprintf("%d %s%s", n, noun, plural(n)) }
