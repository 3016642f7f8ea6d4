package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

var updateDocs = flag.Bool("update", false, "write the outputs of docs/cli.md")

const cliDocs = "../../docs/cli.md"

// The clock of the document. The server's clock is put forward to it.
var docsNow = time.Date(2030, 3, 11, 9, 0, 0, 0, time.UTC)

// The document shows what the commands print: the test runs each command of each block and compares.
func TestTheDocumentOfTheCommandLineIsWhatItPrints(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(cliDocs)
	if err != nil {
		t.Fatal(err)
	}
	s := startShifted(t, docsNow)
	d := docsRun{t: t, env: map[string]string{
		"CARILLON_URL": s.URL, "CARILLON_TOKEN": s.Token, "CARILLON_FORCE_TTY": "96", "NO_COLOR": "1", "TZ": "UTC",
		"XDG_CONFIG_HOME": t.TempDir(), "CARILLON_NO_KEYCHAIN": "1",
	}}
	d.command("carillon schedule put pulse/a --every 2s --overlap allow_all --payload {\"n\":1}")
	got := d.document(string(text))
	if *updateDocs {
		if err := os.WriteFile(cliDocs, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != string(text) {
		t.Errorf("the document is out of date: go test ./cmd/carillon -run TestTheDocumentOfTheCommandLine -update\n%s", got)
	}
}

// docsRun runs the commands of a document.
type docsRun struct {
	t   *testing.T
	env map[string]string
}

// document returns the text with the outputs of its commands.
func (d docsRun) document(text string) string {
	var out strings.Builder
	inBlock := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```"):
			inBlock = strings.TrimSpace(line) == "```console"
			out.WriteString(line)
		case inBlock && strings.HasPrefix(line, "$ "):
			out.WriteString(line)
			out.WriteString(d.command(strings.TrimSpace(strings.TrimPrefix(line, "$ "))))
		case !inBlock:
			out.WriteString(line)
		}
	}
	return out.String()
}

// command runs a command line and returns what it prints on both streams.
func (d docsRun) command(line string) string {
	var out bytes.Buffer
	e := program{func(name string) string { return d.env[name] }, &out, &out}.client()
	e.Now = func() time.Time { return docsNow }
	root := &cobra.Command{Use: "carillon", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(cli.Commands(e)...)
	args := words(d.t, line)[1:]
	for i, arg := range args {
		args[i] = strings.Replace(arg, "docs/examples/", "../../docs/examples/", 1)
	}
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	if err := root.ExecuteContext(ctx); err != nil {
		if e, ok := errors.AsType[*exit.Error](err); !ok || e.Err != nil {
			fmt.Fprintf(&out, "carillon: %v\n", err)
		}
	}
	return steady(out.String())
}

// words splits a command line at blanks outside of quotes.
func words(t *testing.T, line string) (list []string) {
	t.Helper()
	var word strings.Builder
	var quote rune
	began := false
	for _, c := range line + " " {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' && !strings.HasPrefix(word.String(), "{") || c == '\''):
			quote, began = c, true
		case quote == 0 && c == ' ':
			if began {
				list = append(list, word.String())
			}
			word.Reset()
			began = false
		default:
			word.WriteRune(c)
			began = true
		}
	}
	if quote != 0 {
		t.Fatalf("an open quote: %s", line)
	}
	return list
}

// unsteady are the parts of an output that differ from run to run.
var unsteady = []struct {
	pattern *regexp.Regexp
	shown   string
}{
	{regexp.MustCompile(`\b(tick|sch|op)_[a-z0-9]{20,}`), "${1}_…"},
	{regexp.MustCompile(`request [A-Z0-9]{26}`), "request …"},
	{regexp.MustCompile(`fired, (on time|([0-9.]+ ms|([0-9]+[smhdy])+) late)`), "fired, … ms late"},
	{regexp.MustCompile(`(?m)^09:\d\d:\d\d\.\d{3} UTC`), "09:00:….… UTC"},
	{regexp.MustCompile(`whsec_[A-Za-z0-9+/=]+`), "whsec_…"},
	{regexp.MustCompile(`09:0\d(:\d\d)?\b`), "09:…"},
	{regexp.MustCompile(`since Mon 11 Mar 10:0\d(:\d\d)?`), "since Mon 11 Mar 10:00"},
	{regexp.MustCompile(` +\n`), "\n"},
}

func steady(text string) string {
	for _, u := range unsteady {
		text = u.pattern.ReplaceAllString(text, u.shown)
	}
	return text
}
