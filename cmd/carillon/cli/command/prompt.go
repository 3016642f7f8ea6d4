package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

// MayAsk reports whether a question can be asked: there is a terminal, and no --no-input.
func (s *Session) MayAsk() bool {
	in, _ := terminal(s.Env.Stdin)
	out, _ := terminal(s.Env.Stderr)
	return in && out && !s.options.noInput
}

// Yes reports whether --yes is given, so that a command need not count the targets of its question.
func (s *Session) Yes() bool { return s.options.yes }

// Confirm asks whether to do what the question says; it names the targets and their number. --yes answers it.
func (s *Session) Confirm(ctx context.Context, format string, args ...any) error {
	if s.options.yes {
		return nil
	}
	question := fmt.Sprintf(format, args...)
	if !s.MayAsk() {
		return exit.Misused("%s Without a terminal, --yes answers this", question)
	}
	answer, err := s.ask(ctx, question+" [y/N] ")
	if err != nil {
		return err
	}
	if a := strings.ToLower(answer); a != "y" && a != "yes" {
		return &exit.Error{Code: exit.Failed, Err: errors.New("nothing was changed")}
	}
	return nil
}

// ConfirmName asks the user to type a name again, because what follows cannot be undone. --confirm answers it.
func (s *Session) ConfirmName(ctx context.Context, name, format string, args ...any) error {
	question := fmt.Sprintf(format, args...)
	answer := s.options.confirm
	if answer == "" {
		if !s.MayAsk() {
			return exit.Misused("%s Without a terminal, --confirm %s answers this", question, name)
		}
		var err error
		if answer, err = s.ask(ctx, question+" Type "+name+" to go on: "); err != nil {
			return err
		}
	}
	if answer != name {
		return exit.Misused("%q is not %q: nothing was changed", answer, name)
	}
	return nil
}

// ask prints a question and returns the line that the user types.
func (s *Session) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(s.Env.Stderr, question)
	return s.line(ctx, func() (string, error) {
		line, err := bufio.NewReader(s.Env.Stdin).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return strings.TrimSpace(line), err
	})
}

// Secret returns a secret: a terminal asks for it without showing it, and else it is the content of standard input.
func (s *Session) Secret(ctx context.Context, question string) (string, error) {
	if !s.MayAsk() {
		if in, _ := terminal(s.Env.Stdin); in {
			return "", exit.Misused("with --no-input the secret comes from standard input")
		}
		text, err := io.ReadAll(io.LimitReader(s.Env.Stdin, 64<<10))
		return strings.TrimSpace(string(text)), err
	}
	fmt.Fprint(s.Env.Stderr, question)
	secret, err := s.line(ctx, func() (string, error) {
		text, err := term.ReadPassword(int(s.Env.Stdin.(*os.File).Fd()))
		return strings.TrimSpace(string(text)), err
	})
	fmt.Fprintln(s.Env.Stderr)
	return secret, err
}

// line reads from the terminal until ctx ends. A read of a terminal cannot be interrupted: it ends with the process.
func (s *Session) line(ctx context.Context, read func() (string, error)) (string, error) {
	type outcome struct {
		text string
		err  error
	}
	in := s.Env.Stdin.(*os.File)
	before, _ := term.GetState(int(in.Fd())) // without a state there is nothing to restore
	done := make(chan outcome, 1)
	go func() {
		text, err := read()
		done <- outcome{text, err}
	}()
	select {
	case got := <-done:
		return got.text, got.err
	case <-ctx.Done():
		if before != nil {
			_ = term.Restore(int(in.Fd()), before) // the process ends: nobody could act on an error
		}
		fmt.Fprintln(s.Env.Stderr)
		return "", context.Canceled
	}
}
