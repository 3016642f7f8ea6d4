package output

import (
	"context"
	"slices"
	"strings"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

// Kind says how a table shows a value on a terminal. Other formats print every value as the API gives it.
type Kind int

// The kinds of columns.
const (
	Text   Kind = iota
	Time        // an instant: relative, and in the chosen clock
	Millis      // milliseconds
	Count       // a whole number, with separators
	Bytes       // a number of bytes
)

// Column is one column of a table, or one line of a card.
type Column struct {
	Name  string // the header, in lower case; --columns selects it
	Path  string // of the value in the object; empty: Name
	Local string // the path of the same instant as the server's local time; empty: there is none
	Kind  Kind
	Wide  bool                  // it is shown only with -o wide
	Show  func(o Object) string // nil, or computes the text of a table from the whole object
}

// Layout says how objects of one kind are shown.
type Layout struct {
	Columns []Column
	Name    []string // the paths whose values, joined with /, are the name that -o name prints; nil: the first column
}

func (c Column) path() string {
	if c.Path == "" {
		return c.Name
	}
	return c.Path
}

// raw returns the value of the column as the API gives it.
func (c Column) raw(o Object) string {
	if c.Show != nil && c.Path == "" {
		return c.Show(o)
	}
	return o.At(c.path()).String()
}

// shown returns the text of the column for a terminal.
func (c Column) shown(ctx context.Context, o Object, clock Clock, short bool) string {
	if c.Show != nil {
		return c.Show(o)
	}
	value := o.At(c.path())
	if value.Null() {
		return "-"
	}
	switch text := value.String(); c.Kind {
	case Time:
		local := ""
		if c.Local != "" {
			local = o.At(c.Local).String()
		}
		if short {
			return clock.Short(ctx, text, local)
		}
		return clock.Show(ctx, text, local)
	case Millis:
		return millis(text)
	case Count:
		return grouped(text)
	case Bytes:
		return sized(text)
	default:
		return text
	}
}

// name returns what -o name prints for an object.
func (l Layout) name(o Object) string {
	if len(l.Name) == 0 {
		return l.Columns[0].raw(o)
	}
	parts := make([]string, len(l.Name))
	for i, path := range l.Name {
		parts[i] = o.At(path).String()
	}
	return strings.Join(parts, "/")
}

// chosen returns the columns to print: those that the user names, which may also be paths in the object, or the layout's own.
func (p *Printer) chosen(l Layout) ([]Column, error) {
	if len(p.Columns) > 0 {
		var columns []Column
		for _, name := range p.Columns {
			i := slices.IndexFunc(l.Columns, func(c Column) bool { return c.Name == name })
			switch {
			case name == "":
				return nil, exit.Misused("--columns has an empty name")
			case i >= 0:
				columns = append(columns, l.Columns[i])
			default:
				columns = append(columns, Column{Name: name})
			}
		}
		return columns, nil
	}
	all := p.Format == "wide" || p.Format == "csv"
	return slices.DeleteFunc(slices.Clone(l.Columns), func(c Column) bool { return c.Wide && !all }), nil
}
