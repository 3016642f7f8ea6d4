package loop

import "log/slog"

// Log is a log for errors that come again and again: Due says whether one may be logged now.
type Log struct {
	*slog.Logger
	*Rarely
}
