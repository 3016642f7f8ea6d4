package carillontest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// evaluates lists the routes of one schedule that evaluate preconditions, as in the API.
var evaluates = []string{"PUT ", "GET ", "PATCH ", "DELETE ", "POST pause", "POST resume", "POST trigger"}

// unsupported refuses preconditions that the route does not evaluate.
func unsupported(r *http.Request, route string) (int, any) {
	for _, header := range []string{"If-Match", "If-None-Match"} {
		if len(r.Header.Values(header)) > 0 && !slices.Contains(evaluates, route) {
			return refuse(http.StatusBadRequest, "precondition_not_supported", "this route does not support "+header+": leave it out")
		}
	}
	return 0, nil
}

// condition checks If-Match and If-None-Match.
func condition(r *http.Request, held *schedule) (int, any) {
	if status, refused := checkMatch(r, held); refused != nil {
		return status, refused
	}
	if held != nil && hasTag(r, "If-None-Match", held.Version, true) {
		return refuse(http.StatusPreconditionFailed, "version_mismatch", fmt.Sprintf("it already exists, with version %d", held.Version))
	}
	return 0, nil
}

func checkMatch(r *http.Request, held *schedule) (int, any) {
	if len(r.Header.Values("If-Match")) == 0 {
		return 0, nil
	}
	if held == nil {
		return refuse(http.StatusPreconditionFailed, "version_mismatch", "it does not exist yet")
	}
	if !hasTag(r, "If-Match", held.Version, false) {
		return refuse(http.StatusPreconditionFailed, "version_mismatch", fmt.Sprintf("the current version is %d", held.Version))
	}
	return 0, nil
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
