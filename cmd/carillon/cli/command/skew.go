package command

import (
	"iter"
	"maps"
	"net/http"
	"regexp"
	"strconv"
)

func mapKeys(m map[string]any) iter.Seq[string] { return maps.Keys(m) }

var release = regexp.MustCompile(`^v?(\d+)\.(\d+)\.`)

// compare remembers the server's version if it differs from ours by more than one minor version.
func (s *Session) compare(header http.Header) {
	theirs := header.Get("Carillon-Version")
	if far(s.Env.Version, theirs) {
		s.skew = theirs
	}
}

// far reports whether two versions differ by more than one minor version. Development versions are never far.
func far(ours, theirs string) bool {
	a, b := release.FindStringSubmatch(ours), release.FindStringSubmatch(theirs)
	if a == nil || b == nil {
		return false
	}
	if a[1] != b[1] {
		return true
	}
	x, _ := strconv.Atoi(a[2]) // both are digits
	y, _ := strconv.Atoi(b[2])
	return x-y > 1 || y-x > 1
}
