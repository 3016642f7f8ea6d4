package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/migrations"
)

// release is set by the linker: -X main.release=v1.2.3
var release string

// edition describes this program: its version, and the versions of its parts.
type edition struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	TZData   string `json:"tzdata"`
	Schema   int64  `json:"schema"`
	River    string `json:"river,omitempty"`
}

func thisEdition() edition {
	b := edition{
		Version:  "development",
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		TZData:   calendar.Embedded().Version(),
		Schema:   migrations.Latest(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	if release != "" {
		b.Version = release
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/riverqueue/river" {
			b.River = m.Version
		}
	}
	return b
}

func (p program) version() *cobra.Command {
	asJSON := new(bool)
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program and of its parts",
		Long:  "Prints the version, and those of Go, of the built-in time zone data and of the database\nschema.",
		Example: `  carillon version
  carillon version --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisEdition()
			if *asJSON {
				return printJSON(p.stdout, b)
			}
			_, err := fmt.Fprintf(p.stdout, "carillon %s (%s, %s), tzdata %s, schema %d\n", b.Version, b.Go, b.Platform, b.TZData, b.Schema)
			return err
		},
	}
	jsonFlags(cmd, asJSON)
	return cmd
}

// shape is the value of -o in the server's commands, which print one object or text.
type shape struct{ json *bool }

func (s shape) String() string { return "" }
func (s shape) Type() string   { return "table|json" }

func (s shape) Set(text string) error {
	if text != "table" && text != "json" {
		return fmt.Errorf("the formats are table and json")
	}
	*s.json = text == "json"
	return nil
}

// jsonFlags adds -o and --json to a command of the server.
func jsonFlags(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().VarP(shape{asJSON}, "output", "o", "the format of the output")
	cmd.Flags().BoolVar(asJSON, "json", false, "the same as -o json")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
