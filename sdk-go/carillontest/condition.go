package carillontest

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/carillonhq/carillon/internal/fault"
)

func tag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// condition checks If-Match and If-None-Match against the version of what is stored; 0: nothing is stored.
func condition(r *http.Request, version int64) error {
	if err := checkMatch(r, version); err != nil {
		return err
	}
	if version != 0 && hasTag(r, "If-None-Match", version, true) {
		return fault.Mismatch("it already exists, with version %d", version)
	}
	return nil
}

func checkMatch(r *http.Request, version int64) error {
	if len(r.Header.Values("If-Match")) == 0 {
		return nil
	}
	if version == 0 {
		return fault.Mismatch("it does not exist yet")
	}
	if !hasTag(r, "If-Match", version, false) {
		return fault.Mismatch("the current version is %d", version)
	}
	return nil
}

// conditional answers a GET of something with a version: 304 if the client knows that version.
func conditional(r *http.Request, version int64, answer any) (any, error) {
	if err := checkMatch(r, version); err != nil {
		return nil, err
	}
	if hasTag(r, "If-None-Match", version, true) {
		return reply{status: http.StatusNotModified}, nil
	}
	return answer, nil
}

// hasTag reports whether a header lists a version. Weak tags count if weak is set.
func hasTag(r *http.Request, header string, version int64, weak bool) bool {
	for one := range strings.SplitSeq(strings.Join(r.Header.Values(header), ","), ",") {
		one = strings.TrimSpace(one)
		if weak {
			one = strings.TrimPrefix(one, "W/")
		}
		if one == "*" || one == tag(version) {
			return true
		}
	}
	return false
}
