// Package mergepatch applies merge patches (RFC 7396).
package mergepatch

import (
	"bytes"
	"encoding/json"
)

// Apply returns the JSON of a value with a patch applied (RFC 7396 section 2). A patch that is not an object replaces the value. Members
// that the patch does not name keep their text, so numbers stay exact.
func Apply(value, patch json.RawMessage) (json.RawMessage, error) {
	var changes, members map[string]json.RawMessage
	if json.Unmarshal(patch, &changes) != nil || changes == nil {
		return patch, nil
	}
	if json.Unmarshal(value, &members) != nil || members == nil {
		members = map[string]json.RawMessage{}
	}
	for name, change := range changes {
		if string(change) == "null" {
			delete(members, name)
			continue
		}
		with, err := Apply(members[name], change)
		if err != nil {
			return nil, err
		}
		members[name] = with
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(members); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
