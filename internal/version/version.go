// Package version compares the version of a stored thing with the versions that a change demands, so that no change is lost.
package version

import (
	"slices"

	"github.com/carillonhq/carillon/internal/fault"
)

// Precondition is what a request demands of the thing it changes (RFC 9110 section 13.1). The zero value demands nothing.
type Precondition struct {
	IfMatch     Set // the thing exists, and its version is in the set
	IfNoneMatch Set // the thing does not exist, or its version is not in the set
}

// Set is a set of versions that a request names. The zero value is a set that the request does not name.
type Set struct {
	Sent bool // the request names it
	Any  bool // every version is in it
	Of   []int64
}

// Of returns the set of some versions.
func Of(versions ...int64) Set { return Set{Sent: true, Of: versions} }

// Any returns the set of all versions.
func Any() Set { return Set{Sent: true, Any: true} }

// Has reports whether a version is in the set.
func (s Set) Has(version int64) bool { return s.Any || slices.Contains(s.Of, version) }

// Check returns a fault 412 if the stored thing is not what the request demands. version counts only if the thing exists.
func (p Precondition) Check(exists bool, version int64) error {
	if p.IfMatch.Sent && !exists {
		return fault.Mismatch("there is nothing yet that could match")
	}
	if p.IfMatch.Sent && !p.IfMatch.Has(version) {
		return fault.Mismatch("the version is %d by now", version)
	}
	if exists && p.IfNoneMatch.Has(version) {
		return fault.Mismatch("it exists already, with version %d", version)
	}
	return nil
}
