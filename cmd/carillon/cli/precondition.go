package cli

import (
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
)

// preconditions adds the flags that protect a change from another change meanwhile.
func preconditions(f *pflag.FlagSet) {
	f.String("if-version", "", "change it only if its `VERSION` is still this one")
	f.Bool("if-new", false, "only create it: fail if it exists")
}

// precondition returns the headers of those flags.
func precondition(s *command.Session) map[string]string {
	header := map[string]string{}
	if version, err := s.Command.Flags().GetString("if-version"); err == nil && version != "" {
		header["If-Match"] = `"` + version + `"`
	}
	if isNew, err := s.Command.Flags().GetBool("if-new"); err == nil && isNew {
		header["If-None-Match"] = "*"
	}
	return header
}
