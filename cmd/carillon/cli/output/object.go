package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Object is a decoded JSON value whose numbers keep their digits.
type Object struct{ value any }

// Read decodes a JSON text.
func Read(text []byte) (Object, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return Object{}, fmt.Errorf("the server's answer is no JSON: %w", err)
	}
	return Object{value}, nil
}

// At returns the value at a path such as "spec.timezone". It is null if there is none. The empty path is the object itself.
func (o Object) At(path string) Object {
	if path == "" {
		return o
	}
	value := o.value
	for name := range strings.SplitSeq(path, ".") {
		members, _ := value.(map[string]any)
		value = members[name]
	}
	return Object{value}
}

// Items returns the elements of an array, or none.
func (o Object) Items() []Object {
	list, _ := o.value.([]any)
	items := make([]Object, len(list))
	for i, value := range list {
		items[i] = Object{value}
	}
	return items
}

// Null reports whether there is no value.
func (o Object) Null() bool { return o.value == nil }

// Value returns the decoded value: nil, bool, string, json.Number, []any or map[string]any.
func (o Object) Value() any { return o.value }

// String returns the value in one line: text as it is, lists of simple values with commas, and other values as JSON.
func (o Object) String() string {
	switch v := o.value.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		return fmt.Sprint(v)
	case []any:
		if texts, simple := simpleList(v); simple {
			return strings.Join(texts, ",")
		}
	case map[string]any:
		if len(v) == 0 {
			return ""
		}
	}
	return compact(o.value)
}

func simpleList(list []any) (texts []string, simple bool) {
	for _, value := range list {
		switch value.(type) {
		case map[string]any, []any:
			return nil, false
		}
		texts = append(texts, Object{value}.String())
	}
	return texts, true
}

// compact returns a value as JSON without changing < and > in texts.
func compact(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	return strings.TrimSuffix(text.String(), "\n")
}
