package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// resource is a kind of thing that the API stores under a name: workflows, endpoints, calendars, subjects.
type resource struct {
	noun     string // "workflow"
	argument string // "WORKFLOW"
	path     string // "/v1/workflows"
	name     string // the member that has its name
	sample   string // a name for examples
	row      output.Layout
	card     output.Layout
	complete command.Completion
}

// at returns the path of the thing that the first argument names, or of something below it.
func (r resource) at(s *command.Session, below ...string) string {
	return r.path + api.Path(append([]string{s.Args[0]}, below...)...)
}

func (c commander) list(r resource, fields []command.Field, example string) *cobra.Command {
	return c.command(command.Spec{
		Use:     "list",
		Short:   "List " + r.noun + "s",
		Example: example,
		List:    true,
		Fields:  fields,
		Run:     func(ctx context.Context, s *command.Session) error { return s.List(ctx, r.path, r.row) },
	})
}

func (c commander) get(r resource) *cobra.Command {
	return c.command(command.Spec{
		Use:     "get " + r.argument,
		Short:   "Show one " + r.noun,
		Example: "  carillon " + r.noun + " get " + r.sample + "\n  carillon " + r.noun + " get " + r.sample + " -o yaml",
		Args:    []command.Completion{r.complete},
		Run: func(ctx context.Context, s *command.Session) error {
			return s.Show(ctx, api.Request{Path: r.at(s)}, r.card)
		},
	})
}

// put stores a thing as a whole. With --change it changes only the members that the flags name.
func (c commander) put(r resource, spec command.Spec) *cobra.Command {
	spec.Use = "put " + r.argument
	spec.File = true
	spec.Flags = preconditions
	spec.Args = []command.Completion{r.complete}
	spec.Run = func(ctx context.Context, s *command.Session) error {
		body, err := s.Body()
		if err != nil {
			return err
		}
		answer, err := s.API.Do(ctx, api.Request{Method: "PUT", Path: r.at(s), Header: precondition(s), Body: body})
		if err != nil {
			return err
		}
		return stored1(ctx, s, r, answer)
	}
	return c.command(spec)
}

// stored1 says whether a PUT created or changed a thing, and prints it.
func stored1(ctx context.Context, s *command.Session, r resource, answer api.Answer) error {
	verb := "stored"
	if answer.Status == 201 {
		verb = "created"
	}
	s.Note("%s %s %s", verb, r.noun, s.Args[0])
	return s.Out.One(ctx, answer.Body, r.card)
}

// edit changes the members that the flags name.
func (c commander) edit(r resource, spec command.Spec) *cobra.Command {
	spec.Use = "edit " + r.argument
	spec.File = true
	spec.Flags = preconditions
	spec.Args = []command.Completion{r.complete}
	spec.Run = func(ctx context.Context, s *command.Session) error {
		body, err := s.Body()
		if err != nil {
			return err
		}
		if string(body) == "{}" {
			return exit.Misused("%s needs a flag that says what to change, or -f", s.Command.CommandPath())
		}
		return s.Show(ctx, api.Request{Method: "PATCH", Path: r.at(s), Header: precondition(s), Media: "application/merge-patch+json", Body: body}, r.card)
	}
	return c.command(spec)
}

func (c commander) delete(r resource, consequence string) *cobra.Command {
	return c.command(command.Spec{
		Use:     "delete " + r.argument,
		Short:   "Delete one " + r.noun,
		Long:    "Deletes one " + r.noun + ". " + consequence,
		Example: "  carillon " + r.noun + " delete " + r.sample + " --yes",
		Danger:  true,
		Flags:   preconditions,
		Args:    []command.Completion{r.complete},
		Run: func(ctx context.Context, s *command.Session) error {
			if err := s.Confirm(ctx, "Delete 1 %s: %s?", r.noun, s.Args[0]); err != nil {
				return err
			}
			if _, err := s.API.Do(ctx, api.Request{Method: "DELETE", Path: r.at(s), Header: precondition(s)}); err != nil {
				return err
			}
			return s.Done(ctx, map[string]any{"result": "deleted", r.name: s.Args[0]}, "deleted %s %s", r.noun, s.Args[0])
		},
	})
}

// act posts the fields of its flags to a path below the thing, and prints the answer.
func (c commander) act(r resource, spec command.Spec, below string, l output.Layout) *cobra.Command {
	spec.Args = []command.Completion{r.complete}
	spec.Run = func(ctx context.Context, s *command.Session) error {
		request := api.Request{Method: "POST", Path: r.at(s, below)}
		var err error
		if request.Query, err = s.Query(); err != nil {
			return err
		}
		if spec.File || hasBody(spec.Fields) {
			if request.Body, err = s.Body(); err != nil {
				return err
			}
		}
		return s.Show(ctx, request, l)
	}
	return c.command(spec)
}

func hasBody(fields []command.Field) bool {
	for _, f := range fields {
		if f.Pointer != "" {
			return true
		}
	}
	return false
}
