package web

import (
	"encoding/json"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/mergepatch"
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
	after, err := mergepatch.Apply(before, patch)
	if err != nil {
		return merged, err
	}
	return merged, Unmarshal(after, &merged)
}
