package web

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
)

// ETag returns the strong entity tag of a version: its number in quotes (RFC 9110 section 8.8.3).
func ETag(version int64) string {
	return strconv.Quote(strconv.FormatInt(version, 10))
}

// Preconditions reads If-Match and If-None-Match. It returns a fault 400 for a header that is not a list of entity tags.
func Preconditions(c echo.Context) (version.Precondition, error) {
	match, _, err := tags(c, "If-Match") // a weak tag matches nothing (RFC 9110 section 13.1.1)
	if err != nil {
		return version.Precondition{}, err
	}
	none, weak, err := tags(c, "If-None-Match")
	none.Of = append(none.Of, weak...)
	return version.Precondition{IfMatch: match, IfNoneMatch: none}, err
}

// AnswerTagged answers a GET of a versioned resource: 412 if the request requires another version, 304 if the client already has this
// one, otherwise 200 with v.
func AnswerTagged(c echo.Context, version int64, v any) error {
	known, err := known(c, version)
	if err != nil {
		return err
	}
	if known {
		return Answer(c, http.StatusNotModified, nil)
	}
	return Answer(c, http.StatusOK, v)
}

// known sets the ETag of an answer to a GET, and reports whether the client already has this version. It returns a fault 412 if the
// request requires another version.
func known(c echo.Context, current int64) (bool, error) {
	pre, err := Preconditions(c)
	if err != nil {
		return false, err
	}
	known := pre.IfNoneMatch.Has(current)
	pre.IfNoneMatch = version.Set{}
	if err := pre.Check(true, current); err != nil {
		return false, err
	}
	Tag(c, current)
	return known, nil
}

// Tag sets the answer's ETag.
func Tag(c echo.Context, version int64) { c.Response().Header().Set("ETag", ETag(version)) }

// tags parses a header of entity tags. It returns the versions of the strong tags as a set, and the versions of the weak tags. It
// ignores a tag that ETag did not make.
func tags(c echo.Context, header string) (set version.Set, weak []int64, err error) {
	lines := c.Request().Header[http.CanonicalHeaderKey(header)]
	if len(lines) == 0 {
		return version.Set{}, nil, nil
	}
	rest := strings.Trim(strings.Join(lines, ","), " \t")
	if rest == "*" {
		return version.Any(), nil, nil
	}
	set.Sent = true
	some := false
	for rest != "" {
		if rest[0] == ',' { // skip an empty element (RFC 9110 section 5.6.1.2)
			rest = strings.TrimLeft(rest[1:], " \t")
			continue
		}
		opaque, isWeak := strings.CutPrefix(rest, "W/")
		end := strings.IndexByte(strings.TrimPrefix(opaque, `"`), '"')
		if !strings.HasPrefix(opaque, `"`) || end < 0 {
			return version.Set{}, nil, badTags(header)
		}
		some = true
		if n, ours := versionIn(opaque[:end+2]); ours && isWeak {
			weak = append(weak, n)
		} else if ours {
			set.Of = append(set.Of, n)
		}
		rest = strings.TrimLeft(opaque[end+2:], " \t")
		if rest != "" && rest[0] != ',' {
			return version.Set{}, nil, badTags(header)
		}
	}
	if !some {
		return version.Set{}, nil, badTags(header)
	}
	return set, weak, nil
}

// versionIn returns the version of a tag made by ETag.
func versionIn(tag string) (n int64, ours bool) {
	n, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
	return n, err == nil && ETag(n) == tag
}

func badTags(header string) error {
	return fault.Malformed("malformed_header", "%s must be * or a list of entity tags such as %s", header, ETag(3))
}
