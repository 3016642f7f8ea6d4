package schedules

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/carillonhq/carillon/internal/web"
)

// member is one member of a JSON object. Its value keeps its bytes.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of an object, in their order, or false if b is no object. b is valid JSON without duplicate members.
func members(b []byte) (list []member, ok bool) {
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		m := member{name: name.(string)}
		if err := d.Decode(&m.value); err != nil {
			return nil, false
		}
		list = append(list, m)
	}
	return list, true
}

// merge applies a merge patch (RFC 7396 section 2) to a value; a nil value is absent. Members that the
// patch does not touch keep their bytes and their order, and a value that it does not change stays byte for byte.
func merge(value, patch json.RawMessage) (json.RawMessage, error) {
	changes, ok := members(patch)
	if !ok {
		return patch, nil
	}
	merged, isObject := members(value)
	changed := !isObject
	for _, c := range changes {
		i := slices.IndexFunc(merged, func(m member) bool { return m.name == c.name })
		switch {
		case isNull(c.value) && i >= 0:
			merged, changed = slices.Delete(merged, i, i+1), true
		case isNull(c.value):
		case i < 0:
			added, err := merge(nil, c.value)
			if err != nil {
				return nil, err
			}
			merged, changed = append(merged, member{c.name, added}), true
		default:
			with, err := merge(merged[i].value, c.value)
			if err != nil {
				return nil, err
			}
			changed = changed || !bytes.Equal(with, merged[i].value)
			merged[i].value = with
		}
	}
	if !changed {
		return value, nil
	}
	return object(merged)
}

func isNull(b json.RawMessage) bool { return string(bytes.TrimSpace(b)) == "null" }

func object(list []member) (json.RawMessage, error) {
	b := []byte{'{'}
	for i, m := range list {
		name, err := web.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, name...), ':'), m.value...)
	}
	return append(b, '}'), nil
}
