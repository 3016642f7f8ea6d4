package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
	"github.com/carillonhq/carillon/cmd/carillon/cli/profile"
)

// Session is one run of a command.
type Session struct {
	Env     Environment
	Command *cobra.Command
	Args    []string
	API     *api.Client // nil in offline commands
	Out     *output.Printer
	Server  Server // the server and where its credential comes from

	options *options
	spec    Spec
	given   map[string]*values // of the fields, by flag
	skew    string             // the version of the server, if it is far from ours
}

func newSession(e Environment, cmd *cobra.Command, spec Spec, o *options, args []string) (*Session, error) {
	s := &Session{Env: e, Command: cmd, Args: args, options: o, spec: spec, Out: o.printer(e)}
	if o.json && o.format != "" && o.format != "json" {
		return s, exit.Misused("--json and -o %s exclude each other", o.format)
	}
	if err := s.Out.Check(); err != nil {
		return s, err
	}
	if o.limit < 0 {
		return s, exit.Misused("--limit is 0 or more")
	}
	if o.patience <= 0 {
		return s, exit.Misused("--timeout is more than 0s")
	}
	s.Out.Clock = output.Clock{Name: o.clock, Now: e.Now, Zone: s.zone()}
	if spec.Offline {
		return s, nil
	}
	return s, s.connect()
}

// connect makes the client of the API.
func (s *Session) connect() (err error) {
	if s.Server, err = s.server(); err != nil {
		return err
	}
	s.API = s.Client(s.Server)
	return nil
}

// Client returns a client of a server.
func (s *Session) Client(server Server) *api.Client {
	c := &api.Client{
		URL:        server.URL,
		Credential: server.Credential,
		HTTP:       &http.Client{CheckRedirect: sameOrigin},
		Agent:      fmt.Sprintf("carillon/%s (%s; %s)", s.Env.Version, runtime.GOOS, runtime.GOARCH),
		Patience:   s.options.patience,
		Seen:       s.compare,
	}
	if s.options.verbose {
		c.Curl = s.Env.Stderr
	}
	if is, _ := terminal(s.Env.Stderr); is {
		c.Waiting = func(why error) { s.Note("%v; trying again for %s", why, s.options.patience) }
	}
	return c
}

// sameOrigin refuses redirects to other servers, which must not get requests that are meant for this one. It follows at most five
// redirects.
func sameOrigin(next *http.Request, earlier []*http.Request) error {
	if first := earlier[0].URL; next.URL.Host != first.Host || next.URL.Scheme != first.Scheme || len(earlier) > 5 {
		return http.ErrUseLastResponse
	}
	return nil
}

// Note prints a line for the user on standard error.
func (s *Session) Note(format string, args ...any) { fmt.Fprintf(s.Env.Stderr, format+"\n", args...) }

// Show sends a request and prints its answer as one object.
func (s *Session) Show(ctx context.Context, r api.Request, l output.Layout) error {
	answer, err := s.API.Do(ctx, r)
	if err != nil {
		return err
	}
	return s.Out.One(ctx, answer.Body, l)
}

// Done prints the result of a request whose answer has no body: a sentence on standard error, and the target in the chosen format.
func (s *Session) Done(ctx context.Context, target map[string]any, format string, args ...any) error {
	s.Note(format, args...)
	text, err := json.Marshal(target)
	if err != nil {
		return err
	}
	if !s.Out.JSON() && s.Out.Format != "name" && s.Out.Format != "csv" {
		return nil
	}
	var l output.Layout
	for _, name := range slices.Sorted(mapKeys(target)) {
		if name != "result" {
			l.Name = append(l.Name, name)
		}
		l.Columns = append(l.Columns, output.Column{Name: name})
	}
	return s.Out.One(ctx, text, l)
}

// List prints a list of the API, page after page, as the fields of the query select.
func (s *Session) List(ctx context.Context, path string, l output.Layout) error {
	query, err := s.Query()
	if err != nil {
		return err
	}
	return s.ListBy(ctx, path, query, l)
}

// ListBy prints a list of the API that a query selects.
func (s *Session) ListBy(ctx context.Context, path string, query url.Values, l output.Layout) error {
	most, byDefault := s.most()
	items := s.API.Items(ctx, path, query, most)
	if !byDefault {
		return s.Out.List(ctx, items, l)
	}
	more := s.API.Items(ctx, path, query, most+1)
	count := 0
	err := s.Out.List(ctx, func(yield func(json.RawMessage, error) bool) {
		for item, err := range more {
			if count++; err == nil && count > most {
				return
			}
			if !yield(item, err) {
				return
			}
		}
	}, l)
	if err == nil && count > most {
		s.Note("only the first %d are shown; --limit 0 shows all", most)
	}
	if err == nil && count == 0 {
		s.Note("there are none")
	}
	return err
}

// defaultLimit is how many items a list prints on a terminal.
const defaultLimit = 50

// most returns how many items a list may print, and whether that is the terminal's default.
func (s *Session) most() (most int, byDefault bool) {
	if s.Out.Terminal && !s.Command.Flags().Changed("limit") {
		return defaultLimit, true
	}
	return s.options.limit, false
}

// ShowItems prints the items of an answer that is a list without pages.
func (s *Session) ShowItems(ctx context.Context, r api.Request, member string, l output.Layout) error {
	answer, err := s.API.Do(ctx, r)
	if err != nil {
		return err
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(answer.Body, &body); err != nil {
		return fmt.Errorf("the answer to GET %s is no object: %w", r.Path, err)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(body[member], &items); err != nil {
		return fmt.Errorf("the answer to GET %s has no list %q: %w", r.Path, member, err)
	}
	if len(items) == 0 && s.Out.Terminal {
		s.Note("there are none")
	}
	return s.Out.List(ctx, Each(items), l)
}

// Each returns a list of items that are already there.
func Each(items []json.RawMessage) func(yield func(json.RawMessage, error) bool) {
	return func(yield func(json.RawMessage, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// zone returns the function that asks the server for a zone's offset.
func (s *Session) zone() func(context.Context, string, time.Time) (*time.Location, error) {
	var zones zones
	return func(ctx context.Context, name string, at time.Time) (*time.Location, error) {
		return zones.at(ctx, s.API, name, at)
	}
}

// ConfigPath returns the path of the file with the profiles.
func (s *Session) ConfigPath() (string, error) { return profile.Path(s.Env.Getenv) }
