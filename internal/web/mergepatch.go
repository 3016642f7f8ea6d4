package web

import (
	"encoding/json"

	"github.com/carillonhq/carillon/internal/fault"
)

// Merged applies a merge patch (RFC 7396) to the JSON of a value, and reads the result as a T. It returns the faults of UnmarshalPatch into
// a P, and those of Unmarshal into a T.
func Merged[P, T any](value any, patch []byte) (merged T, err error) {
	var checked P
	if err := UnmarshalPatch(patch, &checked); err != nil {
		return merged, err
	}
	var changes map[string]json.RawMessage
	if err := json.Unmarshal(patch, &changes); err != nil || changes == nil {
		return merged, fault.Invalid("", "a merge patch is an object")
	}
	before, err := Marshal(value)
	if err != nil {
		return merged, err
	}
	after, err := mergeJSON(before, patch)
	if err != nil {
		return merged, err
	}
	return merged, Unmarshal(after, &merged)
}

// mergeJSON returns the value with the patch applied. A patch that is not an object replaces the value.
func mergeJSON(value, patch json.RawMessage) (json.RawMessage, error) {
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
		with, err := mergeJSON(members[name], change)
		if err != nil {
			return nil, err
		}
		members[name] = with
	}
	return Marshal(members)
}
