package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// stored is a schedule as the server has it.
type stored struct {
	text      json.RawMessage
	members   map[string]json.RawMessage
	inherited []string // pointers of members that come from the workflow
}

func readDefinition(ctx context.Context, s *command.Session, t target) (stored, error) {
	answer, err := s.API.Do(ctx, api.Request{Path: t.path()})
	if err != nil {
		return stored{}, err
	}
	d := stored{text: answer.Body}
	if err := json.Unmarshal(answer.Body, &d.members); err != nil {
		return d, err
	}
	return d, json.Unmarshal(d.members["inherited"], &d.inherited)
}

// unchanged returns the header of a request that fails if the schedule has changed since it was read.
func (d stored) unchanged() map[string]string {
	return map[string]string{"If-Match": `"` + string(d.members["version"]) + `"`}
}

// own returns the members that a client sets. It omits the members that the schedule inherits from its workflow: if the schedule stored
// them, they would no longer follow the workflow.
func (d stored) own(from map[string]json.RawMessage) map[string]json.RawMessage {
	own := map[string]json.RawMessage{}
	for _, name := range definition {
		text, ok := from[name]
		if !ok || name == "status" && string(text) != `"paused"` && string(text) != `"active"` {
			continue
		}
		if name == "policy" || name == "delivery" {
			if text = d.withoutInherited("/"+name, from[name], d.members[name]); string(text) == "{}" {
				continue
			}
		}
		own[name] = text
	}
	return own
}

// withoutInherited removes the inherited members of an object, unless their value differs from the current one.
func (d stored) withoutInherited(pointer string, text, current json.RawMessage) json.RawMessage {
	var members, now map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil || json.Unmarshal(current, &now) != nil {
		return text
	}
	for name, value := range members {
		below := pointer + "/" + name
		switch {
		case slices.Contains(d.inherited, below) && bytes.Equal(value, now[name]):
			delete(members, name)
		case slices.ContainsFunc(d.inherited, func(p string) bool { return strings.HasPrefix(p, below+"/") }):
			if members[name] = d.withoutInherited(below, value, now[name]); string(members[name]) == "{}" {
				delete(members, name)
			}
		}
	}
	kept, err := command.Encode(members)
	if err != nil {
		return text
	}
	return kept
}

func (c commander) scheduleEdit() *cobra.Command {
	return c.onSchedule(command.Spec{
		Use:   "edit WORKFLOW/KEY",
		Short: "Change members of a schedule, by flags or in your editor",
		Long: `Changes the members that the flags name, and leaves the others. Without flags it opens the
schedule in $VISUAL or $EDITOR; what you save is stored, unless somebody else changed it meanwhile.`,
		Example: `  carillon schedule edit daily-digest/user_123
  carillon schedule edit daily-digest/user_123 --cron "0 9 * * 1-5" --note "one hour later"
  carillon schedule edit daily-digest/user_123 --label plan=pro --label trial=
  EDITOR="code --wait" carillon schedule edit cleanup`,
		File:   true,
		Fields: wholeSchedule,
		Flags:  preconditions,
	}, func(ctx context.Context, s *command.Session, t target) error {
		body, err := s.Body()
		if err != nil {
			return err
		}
		if string(body) == "{}" && !s.HasFile() {
			return editInEditor(ctx, s, t)
		}
		return s.Show(ctx, api.Request{Method: "PATCH", Path: t.path(), Header: precondition(s), Media: "application/merge-patch+json", Body: body}, scheduleCard)
	})
}

// editInEditor lets the user edit the definition as YAML until the server accepts it, or until it is left unchanged.
func editInEditor(ctx context.Context, s *command.Session, t target) error {
	current, err := readDefinition(ctx, s, t)
	if err != nil {
		return err
	}
	own, err := command.Encode(current.own(current.members))
	if err != nil {
		return err
	}
	text, err := output.YAML(own)
	if err != nil {
		return err
	}
	for saved := text; ; {
		edited, err := runEditor(ctx, s, t, saved)
		if err != nil {
			return err
		}
		if bytes.Equal(edited, saved) {
			s.Note("nothing was changed")
			return s.Out.One(ctx, current.text, scheduleCard)
		}
		body, err := output.FromYAML(edited)
		if err == nil {
			err = s.Show(ctx, api.Request{Method: "PUT", Path: t.path(), Header: current.unchanged(), Body: body}, scheduleCard)
		}
		if err == nil || api.HasStatus(err, 412) || !s.MayAsk() || isAway(err) {
			return err
		}
		s.Note("carillon: %v", err)
		if err := s.Confirm(ctx, "Edit it again?"); err != nil {
			return err
		}
		saved = edited
	}
}

func isAway(err error) bool {
	_, away := errors.AsType[*api.Away](err)
	return away
}

// runEditor returns what the user saves in the editor.
func runEditor(ctx context.Context, s *command.Session, t target, text []byte) ([]byte, error) {
	f, err := os.CreateTemp("", "carillon-*.yaml") // only the user can read it
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	head := "# " + t.String() + ": save and close to store it; without a change nothing is stored\n"
	_, err = f.WriteString(head + string(text))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	editor := editorOf(s.Env.Getenv)
	words := strings.Fields(editor)
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], f.Name())...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Env.Stdin, s.Env.Stderr, s.Env.Stderr
	if err := cmd.Run(); err != nil {
		return nil, &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the editor %q: %w", editor, err), Remedy: "EDITOR names the editor"}
	}
	edited, err := os.ReadFile(f.Name())
	return bytes.TrimPrefix(edited, []byte(head)), err
}

func editorOf(getenv func(string) string) string {
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if editor := strings.TrimSpace(getenv(name)); editor != "" {
			return editor
		}
	}
	if runtime.GOOS == "windows" {
		return "notepad"
	}
	return "vi"
}
