package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/carillonhq/carillon/cmd/carillon/cli/exit"
	"github.com/carillonhq/carillon/cmd/carillon/cli/output"
	"github.com/carillonhq/carillon/cmd/carillon/cli/when"
)

// Given reports whether the user gave a flag.
func (s *Session) Given(flag string) bool { return s.Command.Flags().Changed(flag) }

// Text returns the value of a field's flag; "" if it is not given.
func (s *Session) Text(flag string) string {
	if v := s.given[flag]; v != nil && len(v.texts) > 0 {
		return v.texts[0]
	}
	return ""
}

// Give sets the value of a field's flag, as if the user had given it.
func (s *Session) Give(flag, text string) error {
	if err := s.given[flag].Set(text); err != nil {
		return exit.Misused("--%s: %w", flag, err)
	}
	return nil
}

// Moment returns a time argument of a flag in the form of a body's member: an instant, or a wall time in the schedule's zone.
func (s *Session) Moment(flag, text string) (string, error) {
	r := s.reader()
	if r.Zone == "" {
		r.Zone = when.Mine(s.Env.Getenv) // "today" is a day in the user's zone; the time of the day stays one in the schedule's zone
	}
	moment, err := r.Moment(text)
	return moment.String(), s.mistimed(flag, text, err)
}

// Instant returns the instant of a time argument of a flag. A wall time without a zone is in the zone of --clock.
func (s *Session) Instant(flag, text string) (time.Time, error) {
	at, err := s.reader().Instant(text)
	return at, s.mistimed(flag, text, err)
}

// timeOf returns a time argument of a field in the form of a query parameter.
func (s *Session) timeOf(f Field, text string) (string, error) {
	if f.Wall {
		return s.Moment(f.Flag, text)
	}
	at, err := s.Instant(f.Flag, text)
	return at.Format(time.RFC3339Nano), err
}

func (s *Session) reader() when.Reader {
	r := when.Reader{Now: s.Env.Now(), Zone: s.Out.Clock.Name}
	switch r.Zone {
	case "schedule":
		r.Zone = ""
	case "utc":
		r.Zone = "UTC"
	case "mine":
		r.Zone = when.Mine(s.Env.Getenv)
	}
	return r
}

// mistimed returns the error of a wrong time, with a caret under the mistake.
func (s *Session) mistimed(flag, text string, err error) error {
	wrong, ok := errors.AsType[*when.Error](err)
	if !ok {
		return err
	}
	return &exit.Error{Code: exit.Misuse, Err: &placed{Detail: wrong.Detail, Flag: flag, Value: text, Offset: wrong.Offset}}
}

// Query returns the parameters of the fields that the user gave.
func (s *Session) Query() (url.Values, error) {
	query := url.Values{}
	for _, f := range s.spec.Fields {
		v := s.given[f.Flag]
		if f.Pointer != "" || len(v.texts) == 0 {
			continue
		}
		for _, text := range v.texts {
			if f.Kind == Moment {
				var err error
				if text, err = s.timeOf(f, text); err != nil {
					return nil, err
				}
			}
			query.Add(f.parameter(), text)
		}
	}
	return query, nil
}

// Body returns the request's body: the file of -f, in which the given flags replace members.
func (s *Session) Body() ([]byte, error) {
	var members map[string]any
	if s.options.file != "" {
		text, err := s.file()
		if err != nil {
			return nil, err
		}
		if !s.anyMember() {
			return text, nil // byte for byte
		}
		if members, err = objectOf(text); err != nil {
			return nil, exit.Misused("%s: %w", s.options.file, err)
		}
	}
	if members == nil {
		members = map[string]any{}
	}
	for _, f := range s.spec.Fields {
		v := s.given[f.Flag]
		if f.Pointer == "" || len(v.texts) == 0 {
			continue
		}
		value, err := s.value(v)
		if err != nil {
			return nil, err
		}
		if err := set(members, strings.Split(f.Pointer, "/")[1:], value); err != nil {
			return nil, exit.Misused("--%s: %w", f.Flag, err)
		}
	}
	return Encode(members)
}

// BodyWith returns the request's body with one more member.
func (s *Session) BodyWith(name string, value any) ([]byte, error) {
	body, err := s.Body()
	if err != nil {
		return nil, err
	}
	members, err := objectOf(body)
	if err != nil {
		return nil, err
	}
	members[name] = value
	return Encode(members)
}

// file returns the content of -f as JSON.
func (s *Session) file() ([]byte, error) {
	text, err := s.ReadInput(s.options.file)
	if err != nil {
		return nil, err
	}
	if json.Valid(text) {
		return text, nil
	}
	converted, err := output.FromYAML(text)
	if err != nil {
		return nil, exit.Misused("%s is neither JSON nor YAML: %w", s.options.file, err)
	}
	return converted, nil
}

// HasFile reports whether the user gave -f.
func (s *Session) HasFile() bool { return s.options.file != "" }

func (s *Session) anyMember() bool {
	for _, f := range s.spec.Fields {
		if f.Pointer != "" && len(s.given[f.Flag].texts) > 0 {
			return true
		}
	}
	return false
}

// objectOf decodes the members of an object one level deep, so that those that no flag changes stay as they are.
func objectOf(text []byte) (map[string]any, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("the body is not a JSON object: %w", err)
	}
	members := map[string]any{}
	for name, value := range raw {
		members[name] = value
	}
	return members, nil
}

// set puts a value at a path of names. A number as name is an element: 0 makes an array with one object.
func set(members map[string]any, path []string, value json.RawMessage) error {
	name := path[0]
	if len(path) == 1 {
		members[name] = value
		return nil
	}
	if path[1] == "0" { // such as /spec/intervals/0/every
		first, err := child(members, name, true)
		if err != nil {
			return err
		}
		return set(first, path[2:], value)
	}
	inner, err := child(members, name, false)
	if err != nil {
		return err
	}
	return set(inner, path[1:], value)
}

// child returns the object at a name, or the first element of the array there, and creates it if it is missing.
func child(members map[string]any, name string, inArray bool) (map[string]any, error) {
	switch v := members[name].(type) {
	case map[string]any:
		return v, nil
	case []map[string]any:
		return v[0], nil
	case json.RawMessage:
		if inArray {
			return nil, fmt.Errorf("the file already has %q", name)
		}
		inner, err := objectOf(v)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		members[name] = inner
		return inner, nil
	}
	inner := map[string]any{}
	if inArray {
		members[name] = []map[string]any{inner}
	} else {
		members[name] = inner
	}
	return inner, nil
}
