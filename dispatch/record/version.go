package record

import (
	"encoding/json"
	"fmt"
	"time"
)

// Versions are the versions that a workflow was and is registered with.
type Versions struct {
	current string // empty: none
	past    []pastVersion
}

// pastVersion is a version, and the moment, in microseconds since 1970, until which it was registered.
type pastVersion struct {
	Version *string `json:"v"`
	Until   int64   `json:"u"`
}

// ReadVersions reads the columns version and past_versions of a workflow.
func ReadVersions(current string, past []byte) (v Versions, err error) {
	v.current = current
	if past == nil {
		return v, nil
	}
	if err := json.Unmarshal(past, &v.past); err != nil {
		return v, fmt.Errorf("read the earlier versions of a workflow: %w", err)
	}
	return v, nil
}

// At returns the version that was registered at a moment; empty: none.
func (v Versions) At(moment time.Time) string {
	for _, p := range v.past { // the earliest first
		if moment.UnixMicro() >= p.Until {
			continue
		}
		if p.Version == nil {
			return ""
		}
		return *p.Version
	}
	return v.current
}
