package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// logSettings are the settings of logs, for commands that keep running.
type logSettings struct {
	LogFormat format `env:"CARILLON_LOG_FORMAT" envDefault:"text" flag:"log-format" value:"FORMAT" help:"the format of log lines: text or json"`
	LogLevel  level  `env:"CARILLON_LOG_LEVEL" envDefault:"info" flag:"log-level" value:"LEVEL" help:"the least important level that is logged: debug, info, warn or error"`
}

// log returns a logger to standard error. It uses colour only on a terminal, and never if NO_COLOR is set.
func (p program) log(f format, l level) *slog.Logger {
	if f == "json" {
		return slog.New(slog.NewJSONHandler(p.stderr, &slog.HandlerOptions{Level: slog.Level(l)}))
	}
	return slog.New(tint.NewTextHandler(p.stderr, &tint.Options{
		Level:      slog.Level(l),
		TimeFormat: "15:04:05.000",
		NoColor:    !p.coloured(p.stderr),
	}))
}

func (p program) coloured(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb"
}
