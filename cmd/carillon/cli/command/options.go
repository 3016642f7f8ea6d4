package command

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// options are the flags that every client command has.
type options struct {
	format   string
	json     bool
	jq       string
	columns  []string
	clock    string
	profile  string
	verbose  bool
	noInput  bool
	patience time.Duration
	limit    int
	yes      bool
	confirm  string
	file     string
}

// registerOwn adds the flags that only some commands have.
func (o *options) registerOwn(cmd *cobra.Command, spec Spec) {
	f := cmd.Flags()
	if spec.File {
		f.StringVarP(&o.file, "file", "f", "", "a `FILE` with the request's body as JSON or YAML; - is standard input")
	}
	if spec.List {
		f.IntVar(&o.limit, "limit", 0, "print at most so many; 0 is all (default: 50 on a terminal, else all)")
	}
	if spec.Danger {
		f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	}
	if spec.Confirm != "" {
		f.StringVar(&o.confirm, "confirm", "", "the `"+spec.Confirm+"` again, instead of typing it when asked")
	}
}

// registerCommon adds the flags that every command has. They come last in the help.
func (o *options) registerCommon(cmd *cobra.Command) {
	f := cmd.Flags()
	common := strings.Join(output.Formats, ", ")
	f.StringVarP(&o.format, "output", "o", "", "the `FORMAT` of the output: "+common)
	f.BoolVar(&o.json, "json", false, "the same as -o json")
	f.StringVar(&o.jq, "jq", "", "filter the JSON by a jq `EXPRESSION`")
	f.StringSliceVar(&o.columns, "columns", nil, "the `NAMES` of the columns to print; a path such as spec.timezone is a column too")
	f.StringVar(&o.clock, "clock", "schedule", "the `ZONE` of times in tables: schedule, mine, utc or a zone such as Asia/Tokyo")
	f.StringVar(&o.profile, "profile", "", "the `NAME` of the profile to use [CARILLON_PROFILE]")
	f.DurationVar(&o.patience, "timeout", 15*time.Second, "how `LONG` to try a request")
	f.BoolVar(&o.noInput, "no-input", false, "never ask anything")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print each request as a curl command, without the token")
}

// unlimited is the width of -o wide, which truncates nothing.
const unlimited = 1 << 20

// printer returns the printer that the options describe.
func (o *options) printer(e Environment) *output.Printer {
	p := &output.Printer{W: e.Stdout, Format: o.format, JQ: o.jq, Columns: o.columns}
	if p.Format == "" {
		p.Format = "table"
		if o.json || o.jq != "" {
			p.Format = "json"
		}
	}
	p.Terminal, p.Width = terminal(e.Stdout)
	if width, err := strconv.Atoi(e.Getenv("CARILLON_FORCE_TTY")); err == nil && width > 0 {
		p.Terminal, p.Width = true, width // as GH_FORCE_TTY: for documents and tests
	}
	if p.Format == "wide" {
		p.Width = unlimited
	}
	return p
}
