package cli

import (
	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
)

// commander makes the commands of one environment.
type commander struct{ command.Environment }

// Commands returns the client's commands.
func Commands(e command.Environment) []*cobra.Command {
	c := commander{e}
	return []*cobra.Command{
		c.login(), c.logout(), c.whoami(), c.profile(), c.open(), c.api(),
		with(c.schedule(), c.scheduleStreams()...), c.preview(), with(c.subject(), c.subjectStreams()...), with(c.workflow(), c.workflowWave()), c.endpoint(),
		c.calendar(), c.zone(), with(c.tick(), c.tickTail()), c.deadLetter(), with(c.operation(), c.operationWait()), with(c.admin(), c.adminForecast()),
		c.platform(), c.listen(), c.top(), c.docs(),
	}
}

// with adds commands to a group.
func with(group *cobra.Command, more ...*cobra.Command) *cobra.Command {
	group.AddCommand(more...)
	return group
}

func (c commander) command(spec command.Spec) *cobra.Command { return command.New(c.Environment, spec) }
