package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
)

// operationNames completes operations, newest first.
var operationNames = command.Names("/v1/operations", "", "id")

func (c commander) operation() *cobra.Command {
	return command.Group("operation", "Follow and cancel long operations",
		c.command(command.Spec{
			Use:     "list",
			Short:   "List operations, newest first",
			Example: "  carillon operation list --state running\n  carillon operation list -o wide",
			List:    true,
			Fields: []command.Field{{
				Flag: "state", Value: "STATE", Help: "pending, running, succeeded, failed or cancelled",
				Values: []string{"pending", "running", "succeeded", "failed", "cancelled"},
			}},
			Run: func(ctx context.Context, s *command.Session) error {
				return s.List(ctx, "/v1/operations", operationRow)
			},
		}),
		c.command(command.Spec{
			Use:     "get OPERATION",
			Short:   "Show the progress or the result of one operation",
			Example: "  carillon operation get op_0a1b\n  carillon operation get op_0a1b --jq .counts",
			Args:    []command.Completion{operationNames},
			Run: func(ctx context.Context, s *command.Session) error {
				return s.Show(ctx, api.Request{Path: api.Path("v1", "operations", s.Args[0])}, operationCard)
			},
		}),
		c.command(command.Spec{
			Use:     "cancel OPERATION",
			Short:   "Stop an operation; what it has done stays",
			Example: "  carillon operation cancel op_0a1b",
			Args:    []command.Completion{operationNames},
			Run: func(ctx context.Context, s *command.Session) error {
				return s.Show(ctx, api.Request{Method: "POST", Path: api.Path("v1", "operations", s.Args[0], "cancel")}, operationCard)
			},
		}),
	)
}
