package web

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/carillonhq/carillon/internal/fault"
)

// maxDepth is the maximum nesting of arrays and objects in a document. A payload inside the document counts from zero again.
const maxDepth = 128

// CheckJSON checks that raw is exactly one JSON value (RFC 8259) that every parser reads alike: UTF-8, no duplicate member, no lone
// surrogate, no U+0000, and at most 128 levels deep. It returns a *fault.Error with a pointer: 422 for U+0000 in a string, 400 for
// everything else.
func CheckJSON(raw []byte) error {
	return check(raw, nil)
}

// check is CheckJSON that also checks the value against a shape, unless the shape is nil.
func check(raw []byte, want *shape) error { return scan(raw, want, scanner{}) }

// scan is check with a scanner that may have options set.
func scan(raw []byte, want *shape, s scanner) error {
	s.src, s.path, s.names = raw, make([]step, 0, 8), make([][]byte, 0, 16)
	s.space()
	if err := s.value(want, rule{}); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.src) {
		return s.malformed("invalid_json", "more text follows the JSON value at byte %d", s.pos)
	}
	if len(s.fields) == 0 {
		return nil
	}
	e := fault.Fields(s.fields...)
	if s.unknown {
		e.Status = 400
	}
	return e
}

// scanner reads a JSON text once, from left to right. It stops at the first syntax error. It collects the bad values, so that the
// client can correct them together.
type scanner struct {
	src     []byte
	pos     int
	depth   int
	path    []step
	names   [][]byte // the member names of the open objects
	fields  []fault.Field
	unknown bool // an object has an unknown member

	onMember func(name, value []byte) // called with each member of the outermost object, unless nil
	patch    bool                     // the text is a merge patch: a member of any object may be null
	most     int                      // the maximum length of the list that begins here; 0: any
}

// step is one reference token of a JSON pointer: a name, or an index if name is nil.
type step struct {
	name  []byte
	index int
}

// maxFields is the maximum number of bad fields in one fault.
const maxFields = 100

func (s *scanner) pointer() string {
	var b strings.Builder
	for _, p := range s.path {
		b.WriteByte('/')
		if p.name == nil {
			b.WriteString(strconv.Itoa(p.index))
			continue
		}
		b.WriteString(Pointer(strings.ToValidUTF8(string(p.name), "\uFFFD")))
	}
	return b.String()
}

// Pointer escapes ~ and / in one reference token of a JSON pointer (RFC 6901 section 3).
func Pointer(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

func (s *scanner) malformed(code, format string, args ...any) error {
	e := fault.Malformed(code, format, args...)
	e.Fields = []fault.Field{{Pointer: s.pointer(), Code: code, Detail: e.Detail}}
	return e
}

func (s *scanner) syntax() error {
	if s.pos >= len(s.src) {
		return s.malformed("invalid_json", "the JSON ends too early")
	}
	return s.malformed("invalid_json", "the JSON has a syntax error at byte %d", s.pos)
}

func (s *scanner) note(code, format string, args ...any) {
	if len(s.fields) < maxFields {
		s.fields = append(s.fields, fault.Field{Pointer: s.pointer(), Code: code, Detail: fmt.Sprintf(format, args...)})
	}
}

func (s *scanner) space() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// next returns the current byte, or 0 at the end.
func (s *scanner) next() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// value reads a value that must have a shape, or be null if the rule of its place allows null.
func (s *scanner) value(want *shape, place rule) error {
	start, noted := s.pos, len(s.fields)
	if want.raw() {
		defer func(depth int) { s.depth = depth }(s.depth)
		s.depth = 0
	}
	s.most = place.most
	kind, err := s.anything(want)
	if err != nil {
		return err
	}
	switch {
	case want == nil || want.kind == "" || len(s.fields) != noted:
	case kind == "null" && !place.null:
		s.note("wrong_type", "must not be null%s", leaveOut[place.optional])
	case kind == "null":
	case place.nonEmpty && string(s.src[start:s.pos]) == `""`:
		s.note("invalid", "must not be empty: leave it out")
	default:
		want.check(s, kind, s.src[start:s.pos])
	}
	return nil
}

var leaveOut = map[bool]string{true: ": leave it out"}

// anything reads one value and returns its kind: object, array, string, number, boolean or null.
func (s *scanner) anything(want *shape) (string, error) {
	switch c := s.next(); {
	case c == '{':
		return "object", s.nest(func() error { return s.object(want) })
	case c == '[':
		return "array", s.nest(func() error { return s.array(want) })
	case c == '"':
		_, err := s.text()
		return "string", err
	case c == '-' || '0' <= c && c <= '9':
		return "number", s.number()
	case c == 't':
		return "boolean", s.literal("true")
	case c == 'f':
		return "boolean", s.literal("false")
	case c == 'n':
		return "null", s.literal("null")
	}
	return "", s.syntax()
}

func (s *scanner) nest(inside func() error) error {
	if s.depth == maxDepth {
		return s.malformed("too_deep", "the JSON is more than %d deep", maxDepth)
	}
	s.depth++
	s.pos++
	err := inside()
	s.depth--
	return err
}

func (s *scanner) object(want *shape) error {
	first := len(s.names)
	defer func() { s.names = s.names[:first] }()
	var seen map[string]bool // nil until the object has many members
	s.space()
	if s.next() == '}' {
		s.pos++
		return nil
	}
	for {
		s.space()
		if s.next() != '"' {
			return s.syntax()
		}
		name, err := s.text()
		if err != nil {
			return err
		}
		s.path = append(s.path, step{name: name})
		if duplicate(s.names[first:], &seen, name) {
			return s.malformed("duplicate_member", "the member %q appears twice", name)
		}
		s.names = append(s.names, name)
		s.space()
		if s.next() != ':' {
			return s.syntax()
		}
		s.pos++
		s.space()
		inner, place, known := want.member(name)
		place.null = place.null || s.patch
		if !known {
			s.unknown = true
			s.note("unknown_field", "the field %q is unknown", name)
		}
		start := s.pos
		if err := s.value(inner, place); err != nil {
			return err
		}
		if s.onMember != nil && len(s.path) == 1 {
			s.onMember(name, s.src[start:s.pos])
		}
		s.path = s.path[:len(s.path)-1]
		s.space()
		switch s.next() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.syntax()
		}
	}
}

// duplicate reports whether name is in names. It puts more than a few names into a map, so that its time stays linear in an object of
// many members.
func duplicate(names [][]byte, seen *map[string]bool, name []byte) bool {
	const few = 16
	if len(names) < few {
		for _, n := range names {
			if bytes.Equal(n, name) {
				return true
			}
		}
		return false
	}
	if *seen == nil {
		*seen = make(map[string]bool, 4*few)
		for _, n := range names {
			(*seen)[string(n)] = true
		}
	}
	if (*seen)[string(name)] {
		return true
	}
	(*seen)[string(name)] = true
	return false
}

func (s *scanner) array(want *shape) error {
	most := s.most
	s.space()
	if s.next() == ']' {
		s.pos++
		return nil
	}
	inner := want.element()
	for i := 0; ; i++ {
		if most > 0 && i == most {
			return fault.Fields(fault.Field{Pointer: s.pointer(), Code: "invalid", Detail: fmt.Sprintf("must be at most %d elements", most)})
		}
		s.path = append(s.path, step{index: i})
		s.space()
		if err := s.value(inner, rule{}); err != nil {
			return err
		}
		s.path = s.path[:len(s.path)-1]
		s.space()
		switch s.next() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.syntax()
		}
	}
}
