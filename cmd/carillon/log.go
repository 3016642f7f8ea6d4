package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// logSettings are those of every command that runs for long.
type logSettings struct {
	LogFormat format `env:"CARILLON_LOG_FORMAT" envDefault:"text" flag:"log-format" value:"FORMAT" help:"how lines are written: text or json"`
	LogLevel  level  `env:"CARILLON_LOG_LEVEL" envDefault:"info" flag:"log-level" value:"LEVEL" help:"the least important lines that are written: debug, info, warn or error"`
}

// log writes to standard error, in colour on a terminal only and never where NO_COLOR is set.
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
