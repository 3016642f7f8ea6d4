package output

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/cli/go-gh/v2/pkg/tableprinter"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

// Formats are the values of -o.
var Formats = []string{"table", "wide", "json", "ndjson", "yaml", "csv", "name"}

// Printer prints objects to one stream.
type Printer struct {
	W        io.Writer
	Terminal bool // W is a terminal: tables have a header, and fit Width
	Width    int  // columns of the terminal
	Format   string
	JQ       string   // an expression for the JSON formats; empty: none
	Columns  []string // the columns that the user names; nil: the layout's
	Clock    Clock
	Live     bool // a list comes slowly: each item is written at once
}

// Check returns an error if the options of the printer do not exist or exclude each other.
func (p *Printer) Check() error {
	if !slices.Contains(Formats, p.Format) {
		return exit.Misused("-o %s: the formats are %s", p.Format, strings.Join(Formats, ", "))
	}
	if p.JQ != "" && !p.JSON() {
		return exit.Misused("--jq works on -o json, ndjson and yaml, not on -o %s", p.Format)
	}
	if p.JQ != "" {
		if _, err := compileJQ(p.JQ); err != nil {
			return err
		}
	}
	if len(p.Columns) > 0 && (p.JSON() || p.Format == "name") {
		return exit.Misused("--columns selects columns of tables and CSV; -o %s has none", p.Format)
	}
	return nil
}

// JSON reports whether the format carries the API's own objects.
func (p *Printer) JSON() bool {
	return p.Format == "json" || p.Format == "ndjson" || p.Format == "yaml"
}

// One prints one object: as a card with a line for each column, or in the chosen format.
func (p *Printer) One(ctx context.Context, text json.RawMessage, l Layout) error {
	if p.JSON() {
		return p.value(text)
	}
	o, err := Read(text)
	if err != nil {
		return err
	}
	if p.Format == "name" {
		_, err := io.WriteString(p.W, l.name(o)+"\n")
		return err
	}
	if p.Format == "csv" {
		return p.List(ctx, only(text), l)
	}
	columns, err := p.chosen(l)
	if err != nil {
		return err
	}
	if !p.Terminal {
		for _, c := range columns {
			if _, err := io.WriteString(p.W, c.Name+"\t"+cell(c.raw(o))+"\n"); err != nil {
				return err
			}
		}
		return nil
	}
	table := tableprinter.New(p.W, true, p.Width)
	for _, c := range columns {
		if text := c.shown(ctx, o, p.Clock, false); text != "" && text != "-" {
			table.AddField(c.Name)
			table.AddField(text)
			table.EndRow()
		}
	}
	return table.Render()
}

func only(text json.RawMessage) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) { yield(text, nil) }
}

// List prints the items of a list while they arrive. It ends at the first error of the list, after printing what came before it.
func (p *Printer) List(ctx context.Context, items iter.Seq2[json.RawMessage, error], l Layout) error {
	w := bufio.NewWriterSize(p.W, 64<<10)
	if p.Live {
		items = flushed(items, w)
	}
	err := p.list(ctx, w, items, l)
	if flushErr := w.Flush(); err == nil {
		err = flushErr
	}
	return err
}

// flushed writes what an item has become before it waits for the next one.
func flushed(items iter.Seq2[json.RawMessage, error], w *bufio.Writer) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for item, err := range items {
			if !yield(item, err) || w.Flush() != nil { // the printer sees the error with its next write
				return
			}
		}
	}
}

func (p *Printer) list(ctx context.Context, w *bufio.Writer, items iter.Seq2[json.RawMessage, error], l Layout) error {
	switch p.Format {
	case "json":
		return p.array(w, items)
	case "ndjson":
		return each(items, func(item json.RawMessage) error { return p.line(w, item) })
	case "yaml":
		return p.yamlList(w, items)
	case "name":
		return eachObject(items, func(o Object) error {
			_, err := w.WriteString(l.name(o) + "\n")
			return err
		})
	}
	columns, err := p.chosen(l)
	if err != nil {
		return err
	}
	switch {
	case p.Format == "csv":
		return writeCSV(w, items, columns)
	case p.Terminal:
		return p.table(ctx, w, items, columns)
	}
	return eachObject(items, func(o Object) error {
		for i, c := range columns {
			if i > 0 {
				w.WriteByte('\t') // Flush returns the error of a bufio.Writer
			}
			w.WriteString(cell(c.raw(o)))
		}
		return w.WriteByte('\n')
	})
}

// cell makes a text fit into one cell of tab-separated values.
func cell(text string) string {
	return strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(text)
}

func writeCSV(w io.Writer, items iter.Seq2[json.RawMessage, error], columns []Column) error {
	out := csv.NewWriter(w)
	record := make([]string, len(columns))
	for i, c := range columns {
		record[i] = c.Name
	}
	if err := out.Write(record); err != nil {
		return err
	}
	err := eachObject(items, func(o Object) error {
		for i, c := range columns {
			record[i] = c.raw(o)
		}
		return out.Write(record)
	})
	out.Flush()
	if err == nil {
		err = out.Error()
	}
	return err
}

// rowsAtOnce is how many rows a table on a terminal aligns together.
const rowsAtOnce = 500

// table prints rows with a header. The rows of a long list are aligned in groups, so that memory stays constant.
func (p *Printer) table(ctx context.Context, w io.Writer, items iter.Seq2[json.RawMessage, error], columns []Column) error {
	header := make([]string, len(columns))
	for i, c := range columns {
		header[i] = strings.ToUpper(c.Name)
	}
	table, rows := tableprinter.New(w, true, p.Width), 0
	table.AddHeader(header)
	err := eachObject(items, func(o Object) error {
		for _, c := range columns {
			table.AddField(c.shown(ctx, o, p.Clock, len(columns) > 2))
		}
		table.EndRow()
		if rows++; rows%rowsAtOnce > 0 {
			return nil
		}
		err := table.Render()
		table = tableprinter.New(w, true, p.Width)
		return err
	})
	if rows == 0 {
		return err
	}
	if renderErr := table.Render(); err == nil {
		err = renderErr
	}
	return err
}

func each(items iter.Seq2[json.RawMessage, error], do func(json.RawMessage) error) error {
	for item, err := range items {
		if err != nil {
			return err
		}
		if err := do(item); err != nil {
			return err
		}
	}
	return nil
}

func eachObject(items iter.Seq2[json.RawMessage, error], do func(Object) error) error {
	return each(items, func(item json.RawMessage) error {
		o, err := Read(item)
		if err != nil {
			return err
		}
		return do(o)
	})
}

// line prints a value as one line of JSON, after the expression of --jq.
func (p *Printer) line(w io.Writer, text json.RawMessage) error {
	if p.JQ != "" {
		return query(w, p.JQ, text)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := w.Write(out.Bytes())
	return err
}
