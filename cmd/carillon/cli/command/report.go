package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/caret"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

// placed is an error in the value of a flag.
type placed struct {
	Detail, Flag, Value string
	Offset              int // the byte of Value at which the mistake begins; -1: the whole value
}

func (p *placed) Error() string { return "--" + p.Flag + ": " + p.Detail }

// report prints an error of a command and returns an error that only has the exit code. Misuse that is not about a value is printed by
// main, which adds where the help is.
func report(ctx context.Context, s *Session, err error) error {
	if s != nil && s.skew != "" {
		s.Note("warning: this program has version %s and the server has version %s; some commands may not work", s.Env.Version, s.skew)
	}
	if err == nil || errors.Is(err, io.ErrClosedPipe) || isBrokenPipe(err) {
		return nil
	}
	if code := exit.Of(ctx, err); code == exit.Interrupted {
		return &exit.Error{Code: code}
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		s.reportProblem(p)
		return &exit.Error{Code: p.ExitCode()}
	}
	if away, ok := errors.AsType[*api.Away](err); ok {
		return s.fail(exit.TimedOut, away.Error(), s.remedyOfAway())
	}
	if p, ok := errors.AsType[*placed](err); ok {
		s.Note("carillon: %s", p.Detail)
		s.point(p.Flag, p.Value, p.Offset)
		return &exit.Error{Code: exit.Misuse}
	}
	e, ok := errors.AsType[*exit.Error](err)
	switch {
	case ok && e.Err == nil, ok && e.Code == exit.Misuse && e.Remedy == "":
		return e
	case ok:
		return s.fail(e.Code, err.Error(), e.Remedy)
	case errors.Is(err, context.DeadlineExceeded):
		return s.fail(exit.TimedOut, err.Error(), "")
	}
	return s.fail(exit.Failed, err.Error(), "")
}

// fail prints an error that is not the server's. With a JSON format it is a problem document too.
func (s *Session) fail(code int, text, remedy string) error {
	if s.Out.JSON() {
		line, _ := json.Marshal(map[string]any{"title": "the command failed", "detail": text, "code": clientCodes[code]}) // it is plain text
		s.Note("%s", line)
	} else {
		s.Note("carillon: %s", text)
		s.remedy(remedy)
	}
	return &exit.Error{Code: code}
}

// clientCodes are the codes of errors that are not the server's.
var clientCodes = map[int]string{
	exit.Failed: "failed", exit.Misuse: "misuse", exit.NotFound: "not_found", exit.NotAllowed: "not_signed_in", exit.Conflict: "conflict",
	exit.Partly: "partly_done", exit.TimedOut: "timed_out",
}

func (s *Session) remedy(line string) {
	if line != "" {
		s.Note("next: %s", line)
	}
}

// reportProblem prints a refusal of the server: the document itself with a JSON format, and else its text, each bad flag with a caret
// under its value, the request's id and what to do.
func (s *Session) reportProblem(p *api.Problem) {
	if s.Out.JSON() && json.Valid(p.Raw) {
		s.Note("%s", strings.TrimSpace(string(p.Raw)))
		return
	}
	first := *p
	if len(p.Errors) == 1 {
		if _, _, found := s.flagAt(p.Errors[0].Pointer); found {
			first.Detail, _ = caret.Of(p.Detail) // the caret shows the place
		}
	}
	s.Note("carillon: %s", &first)
	for _, field := range p.Errors {
		detail, offset := caret.Of(field.Detail)
		if field.Detail != p.Detail || len(p.Errors) > 1 {
			s.Note("  %s (%s)", detail, field.Code)
		}
		if flag, value, found := s.flagAt(field.Pointer); found {
			s.point(flag, value, offset)
		} else if field.Pointer != "" {
			s.Note("  at %s", field.Pointer)
		}
	}
	if p.RequestID != "" {
		s.Note("  request %s", p.RequestID)
	}
	s.remedy(s.remedyOf(p))
}

// point prints a flag with a caret under the mistake in its value.
func (s *Session) point(flag, value string, offset int) {
	_, width := terminal(s.Env.Stderr)
	s.Note("%s", caret.Mark{Label: "  --" + flag, Text: value, Offset: offset}.Lines(width))
}

// flagAt returns the flag whose value is at a pointer of the request's body, or at a parameter of its query.
func (s *Session) flagAt(pointer string) (flag, value string, found bool) {
	best := -1
	for _, f := range s.spec.Fields {
		v := s.given[f.Flag]
		at := f.Pointer
		if at == "" {
			at = "/" + f.parameter()
		}
		rest, under := strings.CutPrefix(pointer, at)
		if v == nil || len(v.texts) == 0 || !under || rest != "" && rest[0] != '/' || len(at) <= best {
			continue
		}
		best, flag, value, found = len(at), f.Flag, v.at(rest), true
	}
	return flag, value, found
}

// at returns the text of a flag that the rest of a pointer names: /1 is the second one.
func (v *values) at(rest string) string {
	var i int
	if _, err := fmt.Sscanf(rest, "/%d", &i); err == nil && v.repeats() && i >= 0 && i < len(v.texts) {
		return v.texts[i]
	}
	return v.texts[0]
}
