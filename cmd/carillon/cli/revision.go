package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

var revisionRow = output.Layout{
	Name: []string{"version"},
	Columns: []output.Column{
		{Name: "version"}, {Name: "changed", Path: "changed_at", Kind: output.Time}, {Name: "by", Path: "changed_by"}, {Name: "status"},
		{Name: "note"}, {Name: "before", Path: "next_before", Kind: output.Time}, {Name: "after", Path: "next_after", Kind: output.Time},
		{Name: "spec", Wide: true}, {Name: "payload", Wide: true},
	},
}

func (c commander) scheduleRevisions() *cobra.Command {
	return c.onSchedule(command.Spec{
		Use:     "revisions WORKFLOW/KEY",
		Short:   "List the changes of a schedule, newest first",
		Long:    "Lists the changes of a schedule: who changed it, and its next tick before and after.",
		Example: "  carillon schedule revisions daily-digest/user_123",
		List:    true,
	}, func(ctx context.Context, s *command.Session, t target) error {
		return s.List(ctx, t.path("revisions"), revisionRow)
	})
}

// definition are the members of a schedule that a client sets.
var definition = []string{"subject", "spec", "policy", "delivery", "payload", "labels", "note", "status"}

// revisionOf returns a revision of a schedule. Version 0 is the newest, -1 the one before, and so on.
func revisionOf(ctx context.Context, s *command.Session, t target, version int) (map[string]json.RawMessage, error) {
	place := 0
	for item, err := range s.API.Items(ctx, t.path("revisions"), nil, 0) {
		if err != nil {
			return nil, err
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(item, &members); err != nil {
			return nil, err
		}
		if version > 0 && string(members["version"]) == strconv.Itoa(version) || version <= 0 && -version == place {
			return members, nil
		}
		place++
	}
	return nil, &exit.Error{Code: exit.NotFound, Err: fmt.Errorf("%s has no such revision", t), Remedy: "carillon schedule revisions " + t.String() + " lists the revisions that are kept"}
}

// change is one member that differs between two revisions.
type change struct {
	Pointer string          `json:"pointer"`
	Before  json.RawMessage `json:"before"` // null: it was not there
	After   json.RawMessage `json:"after"`
}

var changeRow = output.Layout{Name: []string{"pointer"}, Columns: []output.Column{{Name: "pointer"}, {Name: "before"}, {Name: "after"}}}

// changes returns the members of the definition that differ, by pointer.
func changes(before, after map[string]json.RawMessage) ([]json.RawMessage, error) {
	var list []json.RawMessage
	for _, name := range definition {
		a, err := value(before[name])
		if err != nil {
			return nil, err
		}
		b, err := value(after[name])
		if err != nil {
			return nil, err
		}
		for _, c := range differ("/"+name, a, b) {
			text, err := command.Encode(c)
			if err != nil {
				return nil, err
			}
			list = append(list, text)
		}
	}
	return list, nil
}

func value(text json.RawMessage) (any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	o, err := output.Read(text)
	return o.Value(), err
}

// differ compares two values member by member. Arrays are compared as a whole.
func differ(pointer string, before, after any) []change {
	a, isA := before.(map[string]any)
	b, isB := after.(map[string]any)
	if !isA || !isB {
		x, errX := command.Encode(before)
		y, errY := command.Encode(after)
		if errX == nil && errY == nil && string(x) == string(y) {
			return nil
		}
		return []change{{pointer, x, y}}
	}
	names := slices.Sorted(maps.Keys(a))
	for name := range b {
		if _, both := a[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var list []change
	for _, name := range names {
		escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		list = append(list, differ(pointer+"/"+escaped, a[name], b[name])...)
	}
	return list
}

func (c commander) scheduleDiff() *cobra.Command {
	var from, to int
	return c.onSchedule(command.Spec{
		Use:   "diff WORKFLOW/KEY",
		Short: "Show what changed between two revisions of a schedule",
		Example: `  carillon schedule diff daily-digest/user_123               # the last change
  carillon schedule diff daily-digest/user_123 --from 3 --to 7`,
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&from, "from", 0, "the older `VERSION` (default: the one before the newest)")
			f.IntVar(&to, "to", 0, "the newer `VERSION` (default: the newest)")
		},
	}, func(ctx context.Context, s *command.Session, t target) error {
		if from == 0 {
			from = -1
		}
		before, err := revisionOf(ctx, s, t, from)
		if err != nil {
			return err
		}
		after, err := revisionOf(ctx, s, t, to)
		if err != nil {
			return err
		}
		list, err := changes(before, after)
		if err != nil {
			return err
		}
		s.Note("%s: version %s to version %s, changed by %s", t, before["version"], after["version"], strings.Trim(string(after["changed_by"]), `"`))
		return s.Out.List(ctx, command.Each(list), changeRow)
	})
}

func (c commander) scheduleRevert() *cobra.Command {
	var to int
	return c.onSchedule(command.Spec{
		Use:     "revert WORKFLOW/KEY",
		Short:   "Give a schedule the definition of an earlier revision",
		Long:    "Gives a schedule the definition of an earlier revision. It is a new change: nothing is lost, and\nit is refused if somebody else changes the schedule meanwhile.",
		Example: "  carillon schedule revert daily-digest/user_123 --to 3",
		Danger:  true,
		Flags: func(f *pflag.FlagSet) {
			f.IntVar(&to, "to", 0, "the `VERSION` to go back to (default: the one before the newest)")
		},
	}, func(ctx context.Context, s *command.Session, t target) error {
		if to == 0 {
			to = -1
		}
		revision, err := revisionOf(ctx, s, t, to)
		if err != nil {
			return err
		}
		if string(revision["payload_kept"]) == "false" {
			return &exit.Error{Code: exit.Conflict, Err: fmt.Errorf("the payload of version %s is no longer kept", revision["version"])}
		}
		current, err := readDefinition(ctx, s, t)
		if err != nil {
			return err
		}
		list, err := changes(current.members, revision)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			s.Note("%s already is like version %s", t, revision["version"])
			return s.Out.One(ctx, current.text, scheduleCard)
		}
		if err := s.Confirm(ctx, "Change %s of %s back to version %s?", command.Plural(len(list), "member"), t, revision["version"]); err != nil {
			return err
		}
		body, err := command.Encode(current.own(revision))
		if err != nil {
			return err
		}
		return s.Show(ctx, api.Request{Method: "PUT", Path: t.path(), Header: current.unchanged(), Body: body}, scheduleCard)
	})
}
