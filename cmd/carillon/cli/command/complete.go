package command

import (
	"context"
	"encoding/json"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// completionTime is how long completion may take. A shell that waits longer seems to hang.
const completionTime = time.Second

// complete returns candidates, or none if the server does not answer in time.
func complete(e Environment, cmd *cobra.Command, o *options, source Completion, args []string, typed string) []string {
	s, err := newSession(e, cmd, Spec{}, o, args)
	if err != nil {
		return nil
	}
	s.API.Patience, s.API.Waiting, s.API.Curl, s.API.Seen = completionTime, nil, nil, nil
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	return source(ctx, s, typed)
}

// completeFlags registers the completions of the flags.
func completeFlags(e Environment, cmd *cobra.Command, spec Spec, o *options) {
	fixed := map[string][]string{"output": output.Formats, "clock": {"schedule", "mine", "utc"}}
	for _, f := range spec.Fields {
		if len(f.Values) > 0 {
			fixed[f.Flag] = f.Values
		}
		if f.From != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Flag, func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
				return complete(e, cmd, o, f.From, args, typed), cobra.ShellCompDirectiveNoFileComp
			}) // it fails for a flag that does not exist, and this one does
		}
	}
	for flag, values := range fixed {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// completed is how many candidates completion asks for.
const completed = "100"

// Names returns a completion from the items of a list: the value at a path of each item. prefix is the parameter of the list that
// selects by prefix; empty: the shell filters.
func Names(path, prefix, member string) Completion {
	return func(ctx context.Context, s *Session, typed string) []string {
		query := url.Values{"limit": {completed}}
		if prefix != "" && typed != "" {
			query.Set(prefix, typed)
		}
		return s.Candidates(ctx, path, query, func(o output.Object) string { return o.At(member).String() })
	}
}

// Candidates returns a text for each item of a page of a list; none if the server does not answer.
func (s *Session) Candidates(ctx context.Context, path string, query url.Values, text func(output.Object) string) []string {
	var names []string
	for item, err := range s.API.Items(ctx, path, query, 100) {
		if err != nil {
			return names
		}
		o, err := output.Read(json.RawMessage(item))
		if err != nil {
			return names
		}
		names = append(names, text(o))
	}
	return names
}
