// Package version checks the preconditions of a change against the stored version, so that two clients never overwrite each other's
// changes (optimistic locking). The caller reads the stored version under its own lock; the package uses no table.
package version

import (
	"slices"

	"github.com/carillonhq/carillon/internal/fault"
)

// Precondition holds the preconditions of a request (RFC 9110 section 13.1). The zero value always holds.
type Precondition struct {
	IfMatch     Set // the thing exists, and its version is in the set
	IfNoneMatch Set // the thing does not exist, or its version is not in the set
}

// Set is the versions in one header of a request. The zero value means that the request does not have the header.
type Set struct {
	Sent bool // the request has the header
	Any  bool // the header is *: it matches every version
	Of   []int64
}

// Of returns the set of the given versions.
func Of(versions ...int64) Set { return Set{Sent: true, Of: versions} }

// Any returns the set of all versions.
func Any() Set { return Set{Sent: true, Any: true} }

// Has reports whether a version is in the set.
func (s Set) Has(version int64) bool { return s.Any || slices.Contains(s.Of, version) }

// Check returns a fault 412 if the precondition does not hold. It ignores version if the thing does not exist.
func (p Precondition) Check(exists bool, version int64) error {
	if p.IfMatch.Sent && !exists {
		return fault.Mismatch("it does not exist yet")
	}
	if p.IfMatch.Sent && !p.IfMatch.Has(version) {
		return fault.Mismatch("the current version is %d", version)
	}
	if exists && p.IfNoneMatch.Has(version) {
		return fault.Mismatch("it already exists, with version %d", version)
	}
	return nil
}
