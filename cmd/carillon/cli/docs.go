package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
	"github.com/carillonhq/carillon/docs"
)

var pageRow = output.Layout{Name: []string{"topic"}, Columns: []output.Column{{Name: "topic"}, {Name: "title"}}}

func (c commander) docs() *cobra.Command {
	return c.command(command.Spec{
		Use:   "docs [TOPIC]",
		Short: "Read the documentation, which is in this program",
		Long:  "Prints the pages of the documentation as Markdown. Without a topic it lists the topics.",
		Example: `  carillon docs
  carillon docs dst | less
  carillon docs cli --jq .title`,
		Offline: true,
		Args:    []command.Completion{topicNames},
		Run:     printDocs,
	})
}

func topicNames(context.Context, *command.Session, string) (names []string) {
	for _, p := range docs.Pages() {
		names = append(names, p.Topic)
	}
	return names
}

func printDocs(ctx context.Context, s *command.Session) error {
	var rows []json.RawMessage
	for _, p := range docs.Pages() {
		if len(s.Args) == 1 && p.Topic == s.Args[0] {
			return printPage(ctx, s, p)
		}
		p.Text = ""
		row, err := command.Encode(p)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if len(s.Args) == 1 {
		return &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("there is no topic %q", s.Args[0]), Remedy: "carillon docs lists the topics"}
	}
	return s.Out.List(ctx, command.Each(rows), pageRow)
}

func printPage(ctx context.Context, s *command.Session, p docs.Page) error {
	if (s.Out.Format == "table" || s.Out.Format == "wide") && len(s.Out.Columns) == 0 {
		_, err := io.WriteString(s.Env.Stdout, p.Text)
		return err
	}
	text, err := command.Encode(p)
	if err != nil {
		return err
	}
	return s.Out.One(ctx, text, pageRow)
}
