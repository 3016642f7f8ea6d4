package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/forward"
)

func sampleFlags(f *pflag.FlagSet) {
	f.String("to", "", "send the tick to this `URL`, signed like listen does, with the header carillon-mirror: 1")
	f.StringArray("headers", nil, "with --to: send this `HEADER` too; repeatable")
}

// sendSample sends a sample to a program and prints the answer. It returns an error if the program refuses the tick.
func sendSample(ctx context.Context, s *command.Session, sample api.Request) error {
	flags := s.Command.Flags()
	to, _ := flags.GetString("to") // the flags exist
	if err := forward.Check(to); err != nil {
		return exit.Misused("--to: %w", err)
	}
	lines, _ := flags.GetStringArray("headers")
	target, err := targetAt(s, to, lines, longestAnswer)
	if err != nil {
		return err
	}
	raw, o, err := fetch(ctx, s, sample)
	if err != nil {
		return err
	}
	var body struct{ Body json.RawMessage }
	if err := json.Unmarshal(raw, &body); err != nil {
		return err
	}
	one := o.At("body")
	if batch := one.At("ticks").Items(); len(batch) > 0 {
		one = batch[0]
	}
	l := &listener{s: s, target: target}
	r := l.send(ctx, named(one), body.Body, http.Header{forward.MirrorHeader: {"1"}})
	s.Note("secret  %s", target.Secret)
	if pictured(s) {
		_, err = fmt.Fprintln(s.Out.W, l.line(r))
	} else {
		var text []byte
		if text, err = json.Marshal(r); err == nil {
			err = s.Out.One(ctx, text, forwardedRow)
		}
	}
	if err == nil && r.Error != "" {
		err = &exit.Error{Code: exit.Failed, Err: errors.New("the program did not take the tick: " + r.Error)}
	}
	return err
}
