package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
)

// Kind says how the text of a flag becomes a JSON value.
type Kind int

// The kinds of fields.
const (
	Text    Kind = iota
	Texts        // may be repeated: an array of texts
	Number       // passed on digit by digit
	Bool         // true if the flag is given
	JSON         // any JSON; @FILE reads a file, @- standard input
	Members      // NAME=VALUE, may be repeated: an object of texts; NAME= alone is null in a patch
	Moment       // a time argument, as package when reads it
	Moments      // may be repeated
)

// Field is a flag that becomes a member of the request's body, or a parameter of its query.
type Field struct {
	Flag    string
	Pointer string // of the member, such as /spec/timezone; empty: the flag is a parameter of the query
	Query   string // the name of the parameter; empty: the flag's name with _ for -
	Value   string // the placeholder in the help, such as DURATION
	Help    string
	Kind    Kind
	Fixed   json.RawMessage // of a Bool: the value of the member, if it is not true
	Wall    bool            // of a Moment in the query: it may be a wall time in the schedule's zone
	Values  []string        // the values that completion offers
	From    Completion      // or asks the server for them
}

func (f Field) parameter() string {
	if f.Query != "" {
		return f.Query
	}
	return strings.ReplaceAll(f.Flag, "-", "_")
}

// values are the texts that a flag was given, in order.
type values struct {
	field Field
	texts []string
}

func (v *values) String() string   { return strings.Join(v.texts, ",") }
func (v *values) Type() string     { return v.field.Value }
func (v *values) IsBoolFlag() bool { return v.field.Kind == Bool }
func (v *values) repeats() bool {
	return v.field.Kind == Texts || v.field.Kind == Members || v.field.Kind == Moments
}
func (v *values) Set(text string) error {
	if len(v.texts) > 0 && !v.repeats() {
		return fmt.Errorf("it is given twice")
	}
	v.texts = append(v.texts, text)
	return nil
}

func (f Field) register(flags *pflag.FlagSet) *values {
	v := &values{field: f}
	flag := flags.VarPF(v, f.Flag, "", f.Help)
	if f.Kind == Bool {
		flag.NoOptDefVal = "true"
	}
	return v
}

// maxInput is how many bytes a file or standard input may have as one JSON value.
const maxInput = 64 << 20

// ReadInput returns the content of a file; - is standard input.
func (s *Session) ReadInput(path string) ([]byte, error) {
	in := s.Env.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, &exit.Error{Code: exit.Misuse, Err: err}
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err == nil && len(text) > maxInput {
		return nil, exit.Misused("%s has more than %d MiB", path, maxInput>>20)
	}
	return text, err
}

// value returns the JSON value of a field, and of its texts one by one if it repeats.
func (s *Session) value(v *values) (json.RawMessage, error) {
	text := v.texts[0]
	switch v.field.Kind {
	case Texts:
		return Encode(v.texts)
	case Number:
		if _, err := strconv.ParseFloat(text, 64); err != nil || !json.Valid([]byte(text)) {
			return nil, s.misplaced(v.field, text, "%q is not a number", text)
		}
		return json.RawMessage(text), nil
	case Bool:
		if v.field.Fixed != nil && text == "true" {
			return v.field.Fixed, nil
		}
		if text != "true" && text != "false" {
			return nil, s.misplaced(v.field, text, "%q is neither true nor false", text)
		}
		return json.RawMessage(text), nil
	case JSON:
		return s.jsonValue(v.field, text)
	case Members:
		return s.members(v)
	case Moment:
		moment, err := s.Moment(v.field.Flag, text)
		if err != nil {
			return nil, err
		}
		return Encode(moment)
	case Moments:
		moments := make([]string, len(v.texts))
		for i, text := range v.texts {
			var err error
			if moments[i], err = s.Moment(v.field.Flag, text); err != nil {
				return nil, err
			}
		}
		return Encode(moments)
	}
	return Encode(text)
}

func (s *Session) jsonValue(f Field, text string) (json.RawMessage, error) {
	shown := text
	if path, isFile := strings.CutPrefix(text, "@"); isFile {
		content, err := s.ReadInput(path)
		if err != nil {
			return nil, err
		}
		text = string(content)
	}
	var value json.RawMessage
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, s.misplaced(f, shown, "the value is no JSON: %v; text needs quotes, as in '\"text\"'", err)
	}
	return value, nil
}

func (s *Session) members(v *values) (json.RawMessage, error) {
	object := map[string]any{}
	for _, text := range v.texts {
		name, value, found := strings.Cut(text, "=")
		switch {
		case !found || name == "":
			return nil, s.misplaced(v.field, text, "%q is not NAME=VALUE", text)
		case value == "" && s.Command.Name() == "edit":
			object[name] = nil
		default:
			object[name] = value
		}
	}
	return Encode(object)
}

// Encode returns a value as JSON without changing < and > in texts.
func Encode(value any) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// misplaced returns the error of a wrong value of a flag, in the form of an error of the server: with a caret under the value.
func (s *Session) misplaced(f Field, value, format string, args ...any) error {
	return &exit.Error{Code: exit.Misuse, Err: &placed{Detail: fmt.Sprintf(format, args...), Flag: f.Flag, Value: value, Offset: -1}}
}
