package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/forward"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

// forwardedRow is a tick that was sent to a local program.
var forwardedRow = output.Layout{
	Name: []string{"tick_id"},
	Columns: []output.Column{
		{Name: "at", Kind: output.Time}, {Name: "schedule", Show: scheduleOf}, {Name: "status"}, {Name: "took", Path: "took_ms", Kind: output.Millis},
		{Name: "error"}, {Name: "tick", Path: "tick_id"}, {Name: "result", Wide: true},
	},
}

// forwarded is what became of a tick, as the JSON formats print it.
type forwarded struct {
	At       time.Time `json:"at"`
	TickID   string    `json:"tick_id"`
	Workflow string    `json:"workflow"`
	Key      string    `json:"key"`
	Status   *int      `json:"status"` // of HTTP; null: there was no answer
	TookMS   int64     `json:"took_ms"`
	Error    string    `json:"error,omitempty"`
	Result   string    `json:"result,omitempty"` // of --take: completed, failed, accepted or lost

	answer forward.Answer
	err    error
}

func (c commander) listen() *cobra.Command {
	return c.command(command.Spec{
		Use:   "listen",
		Short: "Send the ticks of a workflow to a program on this machine",
		Long: `Sends the ticks of a workflow to a program on this machine, signed like those of an endpoint. The
signing secret stays the same between runs.

--mirror (default) sends copies, with the header carillon-mirror: 1, and reports no results:
the workflow's own endpoint or workers still get each tick. The server shows at most 50 ticks
a second, and the others are only counted.
--take is a worker: it leases the ticks, keeps their leases while the program works, and
reports 2xx as success and anything else as failure. After 202 the program reports the result
itself. It is refused if the workflow has an endpoint or other workers, unless you say --yes.`,
		Example: `  carillon listen --workflow daily-digest --forward-to http://localhost:3000/ticks
  carillon listen --workflow daily-digest --forward-to http://localhost:3000/ticks --key-prefix user_1 --once
  carillon listen --workflow cleanup --forward-to http://localhost:3000/ticks --take
  carillon listen --workflow daily-digest --print-json | jq .payload`,
		Fields: []command.Field{{Flag: "workflow", Value: "NAME", Help: "the workflow", From: workflowNames}},
		Danger: true,
		Flags: func(f *pflag.FlagSet) {
			f.String("forward-to", "", "the `URL` of the program")
			f.Bool("mirror", false, "send copies, and change nothing (default)")
			f.Bool("take", false, "take the ticks as a worker, and report the results")
			f.String("key-prefix", "", "with --mirror: only keys that begin with this `TEXT`")
			f.StringArray("headers", nil, "send this `HEADER` too, such as \"Authorization: Bearer x\"; repeatable")
			f.Bool("print-json", false, "print the body of each tick as a line of JSON")
			f.Bool("once", false, "end after one tick")
			f.Int("concurrency", 10, "how many ticks the program gets at once")
		},
		Check: checkListen,
		Run: func(ctx context.Context, s *command.Session) error {
			l, err := newListener(s)
			if err != nil {
				return err
			}
			if err := l.announce(ctx); err != nil {
				return err
			}
			return l.run(ctx)
		},
	})
}

func checkListen(s *command.Session) error {
	flags := s.Command.Flags()
	to, _ := flags.GetString("forward-to") // the flags exist
	printing, _ := flags.GetBool("print-json")
	take, _ := flags.GetBool("take")
	mirror, _ := flags.GetBool("mirror")
	n, _ := flags.GetInt("concurrency")
	switch {
	case s.Text("workflow") == "":
		return exit.Misused("%s needs --workflow", s.Command.CommandPath())
	case to == "" && !printing:
		return exit.Misused("%s needs --forward-to URL, or --print-json", s.Command.CommandPath())
	case take && mirror:
		return exit.Misused("--mirror and --take exclude each other")
	case take && to == "":
		return exit.Misused("--take needs --forward-to: the program decides whether a tick succeeds")
	case take && s.Given("key-prefix"):
		return exit.Misused("--key-prefix goes with --mirror only: a worker cannot choose keys")
	case n < 1 || n > 100:
		return exit.Misused("--concurrency is 1 to 100")
	}
	if to != "" {
		if err := forward.Check(to); err != nil {
			return exit.Misused("--forward-to: %w", err)
		}
	}
	return nil
}

// listener sends the ticks of a workflow to a program.
type listener struct {
	s           *command.Session
	workflow    string
	target      forward.Target
	take        bool
	prefix      string
	printJSON   bool
	once        bool
	concurrency int

	results chan forwarded // of ticks, for the printer
	bodies  sync.Mutex     // guards standard output for printJSON
}

// longestAnswer is how long a program may take: as an endpoint in --mirror, and as a worker in --take.
const (
	longestAnswer = 15 * time.Second
	longestWork   = 24 * time.Hour
)

func newListener(s *command.Session) (*listener, error) {
	flags := s.Command.Flags()
	l := &listener{s: s, workflow: s.Text("workflow"), results: make(chan forwarded)}
	l.take, _ = flags.GetBool("take") // the flags exist
	l.prefix, _ = flags.GetString("key-prefix")
	l.printJSON, _ = flags.GetBool("print-json")
	l.once, _ = flags.GetBool("once")
	l.concurrency, _ = flags.GetInt("concurrency")
	if l.once {
		l.concurrency = 1
	}
	longest := longestAnswer
	if l.take {
		longest = longestWork
	}
	to, _ := flags.GetString("forward-to")
	lines, _ := flags.GetStringArray("headers")
	var err error
	l.target, err = targetAt(s, to, lines, longest)
	return l, err
}

// targetAt returns a program that gets ticks, signed with the secret of this user.
func targetAt(s *command.Session, to string, headers []string, longest time.Duration) (t forward.Target, err error) {
	header, err := forward.Headers(headers)
	if err != nil {
		return t, exit.Misused("--headers: %w", err)
	}
	path, err := s.ConfigPath()
	if err != nil {
		return t, err
	}
	secret, err := forward.Secret(filepath.Join(filepath.Dir(path), "listen-secret"))
	if err != nil {
		return t, err
	}
	return forward.Target{URL: to, Secret: secret, Header: header, Client: &http.Client{
		Timeout:       longest,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// announce says on standard error what will happen. It refuses --take where others get the ticks.
func (l *listener) announce(ctx context.Context) error {
	mode := "mirror: sends copies of the ticks of " + l.workflow + ", and changes nothing"
	if l.take {
		if err := l.allowed(ctx); err != nil {
			return err
		}
		mode = "take: leases the ticks of " + l.workflow + ", and reports the results"
	}
	l.s.Note("mode    %s", mode)
	if l.target.URL != "" {
		l.s.Note("to      %s", l.target.URL)
		l.s.Note("secret  %s   (stays the same: put it into .env)", l.target.Secret)
	}
	return nil
}

// run works until ctx ends, or until one tick is sent with --once.
func (l *listener) run(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	worked := make(chan error, 1)
	go func() {
		defer close(l.results)
		if l.take {
			worked <- l.lease(ctx)
		} else {
			worked <- l.mirror(ctx)
		}
	}()
	l.s.Out.Live = true
	printed := l.print(cancel)
	cancel()
	for range l.results { // the workers end when ctx does; their last results are not printed
	}
	err := <-worked
	switch {
	case printed != nil:
		return printed
	case err != nil && parent.Err() == nil:
		return err
	case parent.Err() != nil:
		return context.Canceled
	}
	return nil
}

// print prints the results until there are no more. With --once it ends the work after the first one.
func (l *listener) print(stop func()) error {
	done := func() {
		if l.once {
			stop()
		}
	}
	if l.printJSON || pictured(l.s) {
		w := l.s.Out.W
		if l.printJSON {
			w = l.s.Env.Stderr // standard output has the bodies
		}
		for r := range l.results {
			if l.target.URL != "" {
				if _, err := io.WriteString(w, l.line(r)+"\n"); err != nil {
					return err
				}
			}
			done()
		}
		return nil
	}
	return l.s.Out.List(context.Background(), func(yield func(json.RawMessage, error) bool) {
		for r := range l.results {
			text, err := json.Marshal(r)
			if !yield(text, err) {
				return
			}
			done()
		}
	}, forwardedRow)
}

// line returns what became of a tick, for a person.
func (l *listener) line(r forwarded) string {
	screen := screen(l.s)
	text := r.At.Local().Format("15:04:05.000 MST") + "  " + r.Workflow + "/" + r.Key + "  → "
	switch {
	case r.err != nil:
		text += screen.Bad(r.err.Error())
	case r.answer.Status/100 == 2:
		text += screen.Good(r.answer.Text())
	default:
		text += screen.Bad(r.answer.Text())
	}
	if r.Status != nil {
		text += " in " + output.Milliseconds(r.TookMS)
	}
	if r.Result != "" {
		text += ", " + r.Result
	}
	return text + "   " + screen.Quiet(r.TickID)
}

// send sends a body to the program, and prints it if the user wants that.
func (l *listener) send(ctx context.Context, r forwarded, body []byte, extra http.Header) forwarded {
	r.At = l.s.Env.Now()
	if l.printJSON {
		r.err = l.printBody(ctx, body)
	}
	if l.target.URL == "" || r.err != nil {
		return r
	}
	r.answer, r.err = l.target.Send(ctx, r.TickID, body, r.At, extra)
	r.TookMS = r.answer.Took.Milliseconds()
	if r.err != nil {
		r.Error = r.err.Error()
		return r
	}
	r.Status = &r.answer.Status
	if r.answer.Status/100 != 2 {
		r.Error = r.answer.Text()
	}
	return r
}

// printBody prints a body as one line, or what --jq makes of it.
func (l *listener) printBody(ctx context.Context, body []byte) error {
	l.bodies.Lock()
	defer l.bodies.Unlock()
	if l.s.Out.JQ != "" {
		return l.s.Out.One(ctx, body, output.Layout{})
	}
	_, err := fmt.Fprintf(l.s.Env.Stdout, "%s\n", compact(body))
	return err
}

// compact puts a body on one line; line breaks in a payload are blanks outside of texts.
func compact(body []byte) []byte {
	line := make([]byte, len(body))
	for i, c := range body {
		if c == '\n' || c == '\r' {
			c = ' '
		}
		line[i] = c
	}
	return line
}

// named returns the result of a tick before it is sent.
func named(o output.Object) forwarded {
	return forwarded{TickID: o.At("tick_id").String(), Workflow: o.At("workflow").String(), Key: o.At("key").String()}
}

// patient returns a client of the API that waits longer than the user's --timeout, for long polls.
func patient(s *command.Session, longest time.Duration) *api.Client {
	client := *s.API
	client.Patience = max(client.Patience, longest)
	return &client
}
