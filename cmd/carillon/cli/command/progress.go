package command

import "github.com/carillonhq/carillon/cmd/carillon/cli/progress"

// Bar returns a progress bar on standard error. It shows nothing if that is no terminal. total is -1 if it is unknown.
func (s *Session) Bar(what, unit string, total int64) *progress.Bar {
	is, width := terminal(s.Env.Stderr)
	return progress.New(s.Env.Stderr, is, progress.Options{What: what, Unit: unit, Total: total, Width: width})
}

// YesGiven reports whether the user gave --yes.
func (s *Session) YesGiven() bool { return s.options.yes }
