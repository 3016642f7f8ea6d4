package web

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// ETag is the entity tag of a version: strong, its number in quotes (RFC 9110 section 8.8.3).
func ETag(version int64) string {
	return strconv.Quote(strconv.FormatInt(version, 10))
}

// Tags are the entity tags of one header. The zero value is a header that was not sent.
type Tags struct {
	Sent   bool
	Any    bool     // the header is *
	Strong []string // with their quotes
	Weak   []string // with their quotes, without W/
}

// Precondition is what a request demands of the thing it changes (RFC 9110 section 13.1). The zero value demands
// nothing.
type Precondition struct {
	IfMatch     Tags
	IfNoneMatch Tags
}

// Preconditions reads If-Match and If-None-Match. A header that is not a list of entity tags is 400.
func Preconditions(c echo.Context) (Precondition, error) {
	match, err := IfMatch(c)
	if err != nil {
		return Precondition{}, err
	}
	none, err := IfNoneMatch(c)
	return Precondition{IfMatch: match, IfNoneMatch: none}, err
}

// AnswerTagged answers a GET of what has a version: 412 where the request demands another version, 304 where it knows
// this one.
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

// known tags the answer to a GET, and reports whether the client has this version already. It returns 412 where the request
// demands another version.
func known(c echo.Context, version int64) (bool, error) {
	pre, err := Preconditions(c)
	if err != nil {
		return false, err
	}
	known := pre.IfNoneMatch.Has(version)
	pre.IfNoneMatch = Tags{}
	if err := pre.Check(true, version); err != nil {
		return false, err
	}
	Tag(c, version)
	return known, nil
}

// Tag puts the version into the answer, as its ETag.
func Tag(c echo.Context, version int64) { c.Response().Header().Set("ETag", ETag(version)) }

// Check compares the demands with what is stored, if it exists. A mismatch is 412.
func (p Precondition) Check(exists bool, version int64) error {
	if p.IfMatch.Sent && !exists {
		return fault.Mismatch("there is nothing yet that could match")
	}
	if p.IfMatch.Sent && !p.IfMatch.Any && !slices.Contains(p.IfMatch.Strong, ETag(version)) {
		return fault.Mismatch("the version is %d by now", version)
	}
	if exists && p.IfNoneMatch.Has(version) {
		return fault.Mismatch("it exists already, with version %d", version)
	}
	return nil
}

// Has reports whether a version is among the tags, weak ones too; every version is in *.
func (t Tags) Has(version int64) bool {
	return t.Any || slices.Contains(t.Strong, ETag(version)) || slices.Contains(t.Weak, ETag(version))
}

// IfMatch reads the header If-Match. What is not a list of entity tags is 400.
func IfMatch(c echo.Context) (Tags, error) { return tags(c, "If-Match") }

// IfNoneMatch reads the header If-None-Match. What is not a list of entity tags is 400.
func IfNoneMatch(c echo.Context) (Tags, error) { return tags(c, "If-None-Match") }

func tags(c echo.Context, header string) (Tags, error) {
	lines := c.Request().Header[http.CanonicalHeaderKey(header)]
	if len(lines) == 0 {
		return Tags{}, nil
	}
	t := Tags{Sent: true}
	rest := strings.Trim(strings.Join(lines, ","), " \t")
	if rest == "*" {
		t.Any = true
		return t, nil
	}
	for rest != "" {
		if rest[0] == ',' { // an empty element, which RFC 9110 section 5.6.1.2 has readers skip
			rest = strings.TrimLeft(rest[1:], " \t")
			continue
		}
		opaque, weak := strings.CutPrefix(rest, "W/")
		end := strings.IndexByte(strings.TrimPrefix(opaque, `"`), '"')
		if !strings.HasPrefix(opaque, `"`) || end < 0 {
			return Tags{}, badTags(header)
		}
		tag := opaque[:end+2]
		if weak {
			t.Weak = append(t.Weak, tag)
		} else {
			t.Strong = append(t.Strong, tag)
		}
		rest = strings.TrimLeft(opaque[end+2:], " \t")
		if rest != "" && rest[0] != ',' {
			return Tags{}, badTags(header)
		}
	}
	if len(t.Strong)+len(t.Weak) == 0 {
		return Tags{}, badTags(header)
	}
	return t, nil
}

func badTags(header string) error {
	return fault.Malformed("malformed_header", "%s must be * or a list of entity tags such as %s", header, ETag(3))
}
