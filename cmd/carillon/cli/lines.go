package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"os"
	"strings"

	"github.com/carillonhq/carillon/cmd/carillon/cli/api"
	"github.com/carillonhq/carillon/cmd/carillon/cli/command"
	"github.com/carillonhq/carillon/cmd/carillon/cli/draw"
	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
	"github.com/carillonhq/carillon/cmd/carillon/cli/progress"
)

// lineRow is what became of a line of a file.
var lineRow = output.Layout{
	Name: []string{"line"},
	Columns: []output.Column{
		{Name: "line"},
		{Name: "result"},
		{Name: "name", Show: nameOfLine},
		{Name: "code", Path: "error.code"},
		{Name: "detail", Show: detailOfLine},
	},
}

// nameOfLine returns the schedule or the subject of a line.
func nameOfLine(o output.Object) string {
	if subject := o.At("subject"); !subject.Null() {
		return subject.String()
	}
	if o.At("workflow").String() == "" {
		return ""
	}
	return scheduleOf(o)
}

// detailOfLine says what is wrong with a line, and with which member of it.
func detailOfLine(o output.Object) string {
	detail := o.At("error.detail").String()
	for _, field := range o.At("error.errors").Items() {
		if pointer := field.At("pointer").String(); pointer != "" && !strings.Contains(detail, pointer) {
			detail += " (" + pointer + ")"
		}
	}
	return detail
}

// upload is a file of lines on its way to the server.
type upload struct {
	path  string // of the route
	query url.Values
	what  string // import or sync
}

// lineEnd is the last line of an answer: the counts, or why it was cut.
type lineEnd struct {
	Line     *int64            `json:"line"`
	Summary  map[string]int64  `json:"summary"`
	Warnings []json.RawMessage `json:"warnings"`
	Error    *struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	} `json:"error"`
}

// openLines opens a file of lines; - is standard input. lines is their number, or -1 if it is not known before they are read.
func openLines(s *command.Session, path string) (in io.ReadCloser, lines int64, err error) {
	if path == "-" {
		return io.NopCloser(s.Env.Stdin), -1, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, &exit.Error{Code: exit.Misuse, Err: err}
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = exit.Misused("%s is a folder", path)
	case !info.Mode().IsRegular():
		return f, -1, nil
	default:
		if lines, err = countLines(f); err == nil {
			_, err = f.Seek(0, io.SeekStart)
		}
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, lines, nil
}

func countLines(r io.Reader) (n int64, err error) {
	buffer := make([]byte, 256<<10)
	last := byte('\n')
	for {
		got, err := r.Read(buffer)
		n += int64(bytes.Count(buffer[:got], []byte("\n")))
		if got > 0 {
			last = buffer[got-1]
		}
		if errors.Is(err, io.EOF) {
			if last != '\n' {
				n++
			}
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// counted is a reader that advances a progress bar by one for each line.
type counted struct {
	io.Reader
	bar *progress.Bar
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bar.Add(int64(bytes.Count(p[:n], []byte("\n"))))
	return n, err
}

// aside is a writer that removes a progress bar while it writes.
type aside struct {
	w   io.Writer
	bar *progress.Bar
}

func (a aside) Write(p []byte) (n int, err error) {
	a.bar.Aside(func() { n, err = a.w.Write(p) })
	return n, err
}

// send sends the lines, prints each answered line as it comes, and returns the counts. A JSON format gets the counts as the last item.
func (u upload) send(ctx context.Context, s *command.Session, file string) (end lineEnd, err error) {
	in, lines, err := openLines(s, file)
	if err != nil {
		return end, err
	}
	defer in.Close()
	bar := s.Bar(u.what, "lines", lines)
	defer bar.Close()
	r := api.Request{Method: "POST", Path: u.path, Query: u.query, Media: "application/x-ndjson"}
	answer, err := s.API.Stream(ctx, r, counted{in, bar})
	if err != nil {
		return end, err
	}
	defer answer.Body.Close()
	s.Out.W = aside{s.Out.W, bar}
	err = s.Out.List(ctx, u.items(answer.Body, s.Out.JSON(), &end), lineRow)
	return end, err
}

// items returns the answered lines. end gets the last one.
func (u upload) items(body io.Reader, withEnd bool, end *lineEnd) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		in := bufio.NewReaderSize(body, 64<<10)
		for {
			line, err := in.ReadBytes('\n')
			if text := bytes.TrimSpace(line); len(text) > 0 && (err == nil || errors.Is(err, io.EOF)) {
				*end = lineEnd{}
				if broken := json.Unmarshal(text, end); broken != nil {
					yield(nil, fmt.Errorf("the answer has a line that is no JSON: %w", broken))
					return
				}
				if cut := end.Error; cut != nil && end.Line == nil {
					yield(nil, u.cut(cut.Detail+" ("+cut.Code+")"))
					return
				}
				if (end.Summary == nil || withEnd) && !yield(json.RawMessage(text), nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) && end.Summary != nil {
				return
			}
			if errors.Is(err, io.EOF) {
				err = u.cut("the answer ended too early")
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

func (u upload) cut(why string) error {
	return &exit.Error{Code: exit.Failed, Err: errors.New(why), Remedy: "run it again: lines that are stored already are unchanged then"}
}

// report prints the counts and the warnings, and returns an error if some lines were bad.
func (end lineEnd) report(s *command.Session, verb string) error {
	var parts []string
	var good int64
	for _, name := range []string{"inserted", "updated", "unchanged", "duplicates", "reconciled", "resumed"} {
		n, counted := end.Summary[name]
		if counted && (n > 0 || name == "inserted") {
			parts = append(parts, draw.Count(n)+" "+name)
		}
		if name == "inserted" || name == "updated" || name == "unchanged" {
			good += n
		}
	}
	s.Note("%s: %s", verb, strings.Join(parts, ", "))
	for _, text := range end.Warnings {
		if w, err := output.Read(text); err == nil {
			s.Note("warning: %s (%s)", w.At("detail"), w.At("code"))
		}
	}
	if bad := end.Summary["errors"]; bad > 0 {
		lines := command.Plural(int(bad), "bad line")
		return &exit.Error{Code: exit.Partly, Err: fmt.Errorf("%s; %s good", lines, draw.Count(good))}
	}
	return nil
}
