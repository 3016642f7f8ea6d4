package output_test

import (
	"bytes"
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
)

var layout = output.Layout{Name: []string{"workflow", "key"}, Columns: []output.Column{
	{Name: "key"}, {Name: "next", Path: "next_at", Local: "next_local", Kind: output.Time}, {Name: "n", Kind: output.Count},
}}

const item = `{"workflow":"w","key":"a\tb","next_at":"2026-11-25T13:00:00Z","next_local":"2026-11-25T08:00:00-05:00","n":12345678901234567890.10,"h":"<"}`

func printed(t *testing.T, p output.Printer, items ...string) string {
	t.Helper()
	var out bytes.Buffer
	p.W = &out
	p.Clock = output.Clock{Name: "schedule", Now: func() time.Time { return time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC) }}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	if err := p.List(t.Context(), list(items), layout); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func list(items []string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for _, text := range items {
			if !yield(json.RawMessage(text), nil) {
				return
			}
		}
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		printer output.Printer
		want    string
	}{
		"a pipe":         {output.Printer{Format: "table"}, "a b\t2026-11-25T13:00:00Z\t12345678901234567890.10\n"},
		"csv":            {output.Printer{Format: "csv", Columns: []string{"workflow", "n"}}, "workflow,n\nw,12345678901234567890.10\n"},
		"names":          {output.Printer{Format: "name"}, "w/a\tb\n"},
		"ndjson":         {output.Printer{Format: "ndjson"}, item + "\n"},
		"jq of an array": {output.Printer{Format: "json", JQ: ".[0].n, length"}, "12345678901234567890.10\n1\n"},
		"jq of a line":   {output.Printer{Format: "ndjson", JQ: ".h"}, "<\n"},
		"yaml":           {output.Printer{Format: "yaml", JQ: ""}, "- workflow: w\n  key: \"a\\tb\"\n  next_at: \"2026-11-25T13:00:00Z\"\n  next_local: \"2026-11-25T08:00:00-05:00\"\n  n: 12345678901234567890.10\n  h: <\n"},
	} {
		if got := printed(t, c.printer, item); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := printed(t, output.Printer{Format: "json"}); got != "[]\n" {
		t.Errorf("an empty list is %q", got)
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, p := range []output.Printer{
		{Format: "xml"}, {Format: "csv", JQ: "."}, {Format: "json", Columns: []string{"key"}}, {Format: "json", JQ: ".["},
	} {
		if p.Check() == nil {
			t.Errorf("-o %s --jq %s --columns %s is accepted", p.Format, p.JQ, p.Columns)
		}
	}
}

// YAML that was printed is read back as the same JSON, also texts that look like other values.
func TestYAMLKeepsValues(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"a":"1","b":1e400,"c":"true","d":null,"e":["2026-01-01",{}],"f":"😀","g":"no\nline","h":"~","i":-0.10,"j":"","k":[],"l":"1e400","m":"-0"}`, `"text"`, `[1,[2,[3]]]`,
	} {
		yaml, err := output.YAML(json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		back, err := output.FromYAML(yaml)
		if err != nil {
			t.Fatal(err)
		}
		if string(back) != text {
			t.Errorf("got %s, want %s, by\n%s", back, text, yaml)
		}
	}
}

// counter counts the bytes that it gets.
type counter struct{ bytes int }

func (c *counter) Write(text []byte) (int, error) { c.bytes += len(text); return len(text), nil }

// A long list is printed while it arrives: when the last item is asked for, most of the output is already written.
func TestListsStream(t *testing.T) {
	t.Parallel()
	const many = 50_000
	for _, format := range []string{"table", "json", "ndjson", "yaml", "csv", "name", "table on a terminal"} {
		var out counter
		p := output.Printer{W: &out, Width: 80}
		p.Format, _, p.Terminal = strings.Cut(format, " on a ")
		written := 0
		items := func(yield func(json.RawMessage, error) bool) {
			for i := range many {
				if i == many-1 {
					written = out.bytes
				}
				if !yield(json.RawMessage(`{"workflow":"w","key":"`+strconv.Itoa(i)+`"}`), nil) {
					return
				}
			}
		}
		if err := p.List(t.Context(), items, layout); err != nil {
			t.Fatal(err)
		}
		if written < out.bytes/2 {
			t.Errorf("-o %s: %d of %d bytes are written before the last item", format, written, out.bytes)
		}
	}
}
