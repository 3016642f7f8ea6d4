package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/itchyny/gojq"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

// value prints one value in a JSON format.
func (p *Printer) value(text json.RawMessage) error {
	switch {
	case p.JQ != "":
		return query(p.W, p.JQ, text)
	case p.Format == "ndjson":
		return p.line(p.W, text)
	case p.Format == "yaml":
		return writeYAML(p.W, text)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return fmt.Errorf("the server's answer is no JSON: %w", err)
	}
	out.WriteByte('\n')
	_, err := p.W.Write(bytes.TrimLeft(out.Bytes(), "\n"))
	return err
}

// array prints a list as one JSON array. The expression of --jq gets the whole array, as if the output were piped into jq.
func (p *Printer) array(w io.Writer, items iter.Seq2[json.RawMessage, error]) error {
	out := w
	var whole bytes.Buffer
	if p.JQ != "" {
		out = &whole
	}
	began := false
	err := each(items, func(item json.RawMessage) error {
		lead := ",\n  "
		if !began {
			lead, began = "[\n  ", true
		}
		var text bytes.Buffer
		text.WriteString(lead)
		if err := json.Indent(&text, item, "  ", "  "); err != nil {
			return err
		}
		_, err := out.Write(text.Bytes())
		return err
	})
	if err != nil && !began {
		return err // nothing is printed yet
	}
	end := "\n]\n"
	if !began {
		end = "[]\n"
	}
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, end); err != nil {
		return err
	}
	if p.JQ != "" {
		return query(w, p.JQ, whole.Bytes())
	}
	return nil
}

// query applies a jq expression and prints its results: texts as they are, other values as JSON. Numbers keep their digits.
func query(w io.Writer, expression string, text []byte) error {
	code, err := compileJQ(expression)
	if err != nil {
		return err
	}
	o, err := Read(text)
	if err != nil {
		return err
	}
	results := code.Run(o.value)
	for {
		result, more := results.Next()
		if !more {
			return nil
		}
		if err, failed := result.(error); failed {
			if halt, ok := errors.AsType[*gojq.HaltError](err); ok && halt.Value() == nil {
				return nil
			}
			return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("--jq: %w", err)}
		}
		line, isText := result.(string)
		if !isText {
			encoded, err := gojq.Marshal(result)
			if err != nil {
				return err
			}
			line = string(encoded)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
}

func compileJQ(expression string) (*gojq.Code, error) {
	parsed, err := gojq.Parse(expression)
	if err != nil {
		return nil, exit.Misused("--jq %q: %w", expression, err)
	}
	code, err := gojq.Compile(parsed)
	if err != nil {
		return nil, exit.Misused("--jq %q: %w", expression, err)
	}
	return code, nil
}
