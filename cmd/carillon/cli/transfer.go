package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// resultsField selects which lines of an answer are printed.
var resultsField = command.Field{Flag: "results", Value: "all|errors", Help: "print all lines, or only the bad ones (default: errors)", Values: []string{"all", "errors"}}

// resultsOf adds the default of --results to a query.
func resultsOf(query url.Values) url.Values {
	if !query.Has("results") {
		query.Set("results", "errors")
	}
	return query
}

// importing returns a command that sends a file of lines to a bulk route.
func (c commander) importing(what, path, example string, more ...command.Field) *cobra.Command {
	return c.command(command.Spec{
		Use:   "import FILE",
		Short: "Store " + what + " from a file, one JSON object a line",
		Long: `Stores ` + what + ` from a file with one JSON object a line, as export writes them; - is
standard input. A bad line does not affect the others: it is listed with its number, and the
command exits with 6. Running it again changes nothing that is stored already.`,
		Example: example,
		Fields:  append(more, resultsField),
		Run: func(ctx context.Context, s *command.Session) error {
			query, err := s.Query()
			if err != nil {
				return err
			}
			verb := "import"
			if query.Get("dry_run") == "true" {
				verb = "it would be"
			}
			end, err := upload{path: path, query: resultsOf(query), what: "import"}.send(ctx, s, s.Args[0])
			if err != nil {
				return err
			}
			return end.report(s, verb)
		},
	})
}

// exporting returns a command that prints all lines of an export route.
func (c commander) exporting(what, path, example string, l output.Layout, fields []command.Field) *cobra.Command {
	return c.command(command.Spec{
		Use:   "export",
		Short: "Print all " + what + " as lines that import takes",
		Long: `Prints all ` + what + ` as JSON, one object a line, as import takes them. With -o, --jq or
--columns it prints them in another form.`,
		Example: example,
		Fields:  fields,
		Run: func(ctx context.Context, s *command.Session) error {
			query, err := s.Query()
			if err != nil {
				return err
			}
			answer, err := s.API.Stream(ctx, api.Request{Path: path, Query: query}, nil)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if s.Given("output") || s.Given("json") || s.Given("jq") || s.Given("columns") {
				return s.Out.List(ctx, itemsOf(answer.Body), l)
			}
			return copyLines(s, answer.Body)
		},
	})
}

// copyLines copies the lines byte for byte.
func copyLines(s *command.Session, body io.Reader) error {
	bar := s.Bar("export", "lines", -1)
	if s.Out.Terminal {
		bar.Close() // the lines themselves show the progress
		bar = nil
	}
	_, err := io.Copy(s.Out.W, counted{body, bar})
	bar.Close()
	return cutOff(err)
}

// cutOff replaces the error of an export that broke off before its end by an error for the user. It returns any other error unchanged.
func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &exit.Error{Code: exit.Failed, Err: errors.New("the server cut the export off: it is not complete"), Remedy: "run it again"}
	}
	return err
}

// itemsOf returns the lines of a stream as items.
func itemsOf(body io.Reader) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		in := bufio.NewReaderSize(body, 64<<10)
		for {
			line, err := in.ReadBytes('\n')
			if text := bytes.TrimSpace(line); len(text) > 0 && (err == nil || errors.Is(err, io.EOF)) && !yield(json.RawMessage(text), nil) {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, cutOff(err))
				return
			}
		}
	}
}

var syncFields = []command.Field{
	{Flag: "workflow", Value: "NAME", Help: "the scope: the schedules of this workflow", From: workflowNames},
	{Flag: "key-prefix", Value: "TEXT", Help: "with --workflow: only keys that begin so"},
	{Flag: "label", Value: "NAME:VALUE", Help: "the scope: the schedules of all workflows with this label"},
	{Flag: "unlisted", Value: "keep|pause|delete", Help: "what becomes of schedules in the scope that the file does not list (default: keep)", Values: []string{"keep", "pause", "delete"}},
	{Flag: "max-change", Value: "N|N%", Help: "change nothing if more of the stored schedules would change, such as 5%"},
	{Flag: "dry-run", Kind: command.Bool, Help: "only count what would change"},
	resultsField,
}

func (c commander) scheduleSync() *cobra.Command {
	return c.command(command.Spec{
		Use:   "sync FILE",
		Short: "Make the schedules of a workflow or a label equal to a file",
		Long: `Makes the stored schedules of a scope equal to those in a file with one JSON object a line; - is
standard input. The scope is --workflow, or --label. Schedules in it that the file does not
list are kept, paused or deleted. With bad lines nothing unlisted is touched, and the command
exits with 6.`,
		Example: `  carillon schedule sync digests.ndjson --workflow daily-digest --dry-run
  carillon schedule sync digests.ndjson --workflow daily-digest --unlisted pause --max-change 5%
  crm export | carillon schedule sync - --label source:crm --unlisted delete --yes`,
		Fields: syncFields,
		Danger: true,
		Check: func(s *command.Session) error {
			if s.Given("workflow") == s.Given("label") {
				return exit.Misused("%s needs either --workflow or --label: the scope", s.Command.CommandPath())
			}
			return nil
		},
		Run: func(ctx context.Context, s *command.Session) error {
			query, err := s.Query()
			if err != nil {
				return err
			}
			u := upload{path: "/v1/schedules/sync", query: resultsOf(query), what: "sync"}
			verb := "sync"
			if query.Get("dry_run") == "true" {
				verb = "it would be"
			} else if err := u.confirm(ctx, s); err != nil {
				return err
			}
			end, err := u.send(ctx, s, s.Args[0])
			if err != nil {
				return err
			}
			return end.report(s, verb)
		},
	})
}

// confirm asks before a sync deletes schedules. It counts them first, if the file can be read twice.
func (u upload) confirm(ctx context.Context, s *command.Session) error {
	if u.query.Get("unlisted") != "delete" || s.YesGiven() {
		return nil
	}
	if s.Args[0] == "-" {
		return s.Confirm(ctx, "Sync deletes the schedules that standard input does not list.")
	}
	trial := upload{path: u.path, query: url.Values{}, what: "count"}
	for name, values := range u.query {
		trial.query[name] = values
	}
	trial.query.Set("dry_run", "true")
	quiet := *s
	printer := *s.Out
	printer.W, printer.Format = io.Discard, "ndjson"
	quiet.Out = &printer
	end, err := trial.send(ctx, &quiet, s.Args[0])
	if err != nil {
		return err
	}
	if n := end.Summary["reconciled"]; n > 0 {
		return s.Confirm(ctx, "Sync deletes %s, updates %d and inserts %d.", command.Plural(int(n), "schedule"), end.Summary["updated"], end.Summary["inserted"])
	}
	return nil
}

// scheduleStreams returns the commands that move many schedules.
func (c commander) scheduleStreams() []*cobra.Command {
	return []*cobra.Command{
		c.importing("schedules", "/v1/schedules/bulk", `  carillon schedule import schedules.ndjson
  carillon schedule export | carillon schedule import - --profile staging
  carillon schedule import schedules.ndjson --dry-run
  carillon schedule import schedules.ndjson --results all -o ndjson > answers.ndjson`,
			command.Field{Flag: "dry-run", Kind: command.Bool, Help: "store nothing, and only tell what would change"}),
		c.exporting("schedules", "/v1/schedules/export", `  carillon schedule export > schedules.ndjson
  carillon schedule export --workflow daily-digest -o csv --columns key,spec.timezone`, exportedRow,
			[]command.Field{{Flag: "workflow", Value: "NAME", Help: "of this workflow", From: workflowNames}}),
		c.scheduleSync(), c.scheduleBulk(),
	}
}

// subjectStreams returns the commands that move many subjects.
func (c commander) subjectStreams() []*cobra.Command {
	return []*cobra.Command{
		c.importing("subjects", "/v1/subjects/bulk", `  carillon subject import subjects.ndjson
  carillon subject export | carillon subject import - --profile staging`),
		c.exporting("subjects", "/v1/subjects/export", `  carillon subject export > subjects.ndjson
  carillon subject export -o csv`, output.Layout{Columns: []output.Column{{Name: "subject"}, {Name: "timezone"}, {Name: "quiet_hours"}, {Name: "labels"}}}, nil),
	}
}

// exportedRow is a schedule as export writes it.
var exportedRow = output.Layout{
	Name: []string{"workflow", "key"},
	Columns: []output.Column{
		{Name: "workflow"}, {Name: "key"}, {Name: "zone", Path: "spec.timezone"}, {Name: "spec"}, {Name: "status"}, {Name: "subject", Wide: true}, {Name: "labels", Wide: true}, {Name: "payload", Wide: true},
	},
}
