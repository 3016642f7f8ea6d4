package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

func (c commander) api() *cobra.Command {
	var headers []string
	var data, media string
	return c.command(command.Spec{
		Use:   "api METHOD PATH",
		Short: "Send any request of the API with your credential",
		Long: `Sends a request with your credential and prints the answer. Requests that the server refuses with
429 or 503 are repeated; a POST has an idempotency key. The formats of -o apply to JSON answers.`,
		Example: `  carillon api GET /v1/schedules?limit=3
  carillon api POST /v1/schedules/preview -d '{"spec": {"cron": "0 8 * * *"}}' --jq '.ticks[].local_time'
  carillon api PUT /v1/workflows/w/schedules/k -d @schedule.json -H 'If-None-Match: *'
  carillon api POST /v1/schedules/bulk -d @lines.ndjson --media application/x-ndjson`,
		Flags: func(f *pflag.FlagSet) {
			f.StringVarP(&data, "data", "d", "", "the `BODY`; @FILE reads a file, @- standard input")
			f.StringVar(&media, "media", "", "the `TYPE` of the body (default application/json)")
			f.StringArrayVarP(&headers, "header", "H", nil, "a `HEADER` such as \"If-Match: \\\"3\\\"\"; repeatable")
		},
		Args: []command.Completion{
			func(context.Context, *command.Session, string) []string {
				return []string{"GET", "PUT", "PATCH", "POST", "DELETE", "HEAD"}
			},
		},
		Run: func(ctx context.Context, s *command.Session) error {
			r, err := requestOf(s.Args[0], s.Args[1], headers)
			if err != nil {
				return err
			}
			r.Media, r.Body = media, []byte(data)
			if path, isFile := strings.CutPrefix(data, "@"); isFile {
				if r.Body, err = s.ReadInput(path); err != nil {
					return err
				}
			}
			answer, err := s.API.Do(ctx, r)
			if err != nil {
				return err
			}
			return showRaw(ctx, s, answer)
		},
	})
}

// requestOf returns a request to a path that may have a query.
func requestOf(method, path string, headers []string) (api.Request, error) {
	r := api.Request{Method: strings.ToUpper(method), Header: map[string]string{}}
	if !strings.HasPrefix(path, "/") {
		return r, exit.Misused("%q is not a path such as /v1/schedules", path)
	}
	u, err := url.Parse(path)
	if err != nil {
		return r, exit.Misused("%w", err)
	}
	r.Path = u.EscapedPath()
	if r.Query, err = url.ParseQuery(u.RawQuery); err != nil {
		return r, exit.Misused("the query of %q: %w", path, err)
	}
	for _, header := range headers {
		name, value, found := strings.Cut(header, ":")
		if !found || strings.EqualFold(name, "Authorization") {
			return r, exit.Misused("-H takes NAME: VALUE, and never the credential, which other users can read: %q", name)
		}
		r.Header[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return r, nil
}

// showRaw prints an answer: JSON in the chosen format, lines of NDJSON as a list, and everything else as it is.
func showRaw(ctx context.Context, s *command.Session, answer api.Answer) error {
	body := bytes.TrimSpace(answer.Body)
	media, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	switch {
	case len(body) == 0:
		s.Note("%d, without a body", answer.Status)
		return nil
	case media == "application/x-ndjson":
		return s.Out.List(ctx, lines(body), output.Layout{Columns: []output.Column{{Name: "line", Show: output.Object.String}}})
	case !json.Valid(body):
		_, err := s.Env.Stdout.Write(answer.Body)
		return err
	}
	if f := s.Out.Format; f == "table" || f == "wide" || f == "name" {
		s.Out.Format = "json"
	}
	if s.Out.Format == "csv" {
		return exit.Misused("-o csv: an answer of the API is no table")
	}
	return s.Out.One(ctx, body, output.Layout{})
}

// lines returns the lines of NDJSON.
func lines(body []byte) func(yield func(json.RawMessage, error) bool) {
	return func(yield func(json.RawMessage, error) bool) {
		in := bufio.NewReader(bytes.NewReader(body))
		for {
			line, err := in.ReadBytes('\n')
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(line, nil) {
				return
			}
			if err != nil {
				if err != io.EOF {
					yield(nil, err)
				}
				return
			}
		}
	}
}
