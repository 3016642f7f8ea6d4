package web

import (
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/instant"
)

// shape is the JSON that a Go type accepts: the kind of the value, and the exact member names of an object. A nil shape accepts any
// value.
type shape struct {
	typ      reflect.Type
	kind     string // as the scanner names them; "" for any; "custom" and "text" for types with their own unmarshaler
	members  map[string]*shape
	rules    map[string]rule // of the members
	inner    *shape          // of the elements of an array, or of the values of a map
	verbatim bool
}

// rule is what the place of a value allows. The place is a member of an object, an element of a list, or the whole text.
type rule struct {
	optional bool // the member may be absent
	null     bool // the value may be null: its field has the tag null:"yes"
	nonEmpty bool // an optional string must not be ""
	most     int  // the maximum length of a list; 0: any
}

var (
	shapes     sync.Map // reflect.Type to *shape
	building   sync.Mutex
	readsJSON  = reflect.TypeFor[json.Unmarshaler]()
	readsText  = reflect.TypeFor[encoding.TextUnmarshaler]()
	rawMessage = reflect.TypeFor[json.RawMessage]()
	rawType    = reflect.TypeFor[Raw]()
)

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	building.Lock()
	defer building.Unlock()
	made := map[reflect.Type]*shape{}
	s := build(t, made)
	for t, s := range made { // other goroutines see only complete shapes
		shapes.LoadOrStore(t, s)
	}
	return s
}

func build(t reflect.Type, made map[reflect.Type]*shape) *shape {
	if s := made[t]; s != nil {
		return s
	}
	s := &shape{typ: t}
	made[t] = s
	switch {
	case t == rawMessage || t == rawType:
		s.verbatim = true
		return s
	case t.Kind() == reflect.Pointer:
		*s = *build(t.Elem(), made)
		return s
	case reflect.PointerTo(t).Implements(readsJSON):
		s.kind = "custom"
		return s
	case reflect.PointerTo(t).Implements(readsText):
		s.kind = "text"
		return s
	}
	switch t.Kind() {
	case reflect.String:
		s.kind = "string"
	case reflect.Bool:
		s.kind = "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		s.kind = "number"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			s.kind = "string" // base64
			break
		}
		s.kind, s.inner = "array", build(t.Elem(), made)
	case reflect.Map:
		s.kind, s.inner = "object", build(t.Elem(), made)
	case reflect.Struct:
		s.kind, s.members, s.rules = "object", map[string]*shape{}, map[string]rule{}
		s.embed(t, made)
	}
	return s
}

// embed adds the fields of a struct as members. Fields of embedded structs come after, and never replace a member.
func (s *shape) embed(t reflect.Type, made map[reflect.Type]*shape) {
	var inside []reflect.Type
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			if f.Type.Kind() == reflect.Pointer {
				inside = append(inside, f.Type.Elem())
			} else {
				inside = append(inside, f.Type)
			}
			continue
		}
		if !f.IsExported() || f.Tag.Get("json") == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if s.members[name] == nil {
			optional := strings.HasPrefix(options, "omit")
			s.members[name] = build(f.Type, made)
			s.rules[name] = rule{
				optional: optional, null: f.Tag.Get("null") == "yes",
				nonEmpty: optional && f.Type.Kind() == reflect.String && f.Tag.Get("empty") != "yes",
				most:     mostElements(f),
			}
		}
	}
	for _, t := range inside {
		if t.Kind() == reflect.Struct {
			s.embed(t, made)
		}
	}
}

// mostElements returns the maximum length of a list, from its tag "most". The scanner stops there. Otherwise a long list of empty
// objects would become Go values, which take many times as many bytes.
func mostElements(f reflect.StructField) int {
	most, _ := strconv.Atoi(f.Tag.Get("most")) // 0 without the tag
	return most
}

// raw reports whether the value is stored unparsed.
func (s *shape) raw() bool { return s != nil && s.verbatim }

// member returns the shape and the rule of an object's member, and whether the object may have a member of that name.
func (s *shape) member(name []byte) (*shape, rule, bool) {
	if s == nil || s.members == nil {
		return s.element(), rule{}, true
	}
	m, ok := s.members[string(name)]
	return m, s.rules[string(name)], ok
}

func (s *shape) element() *shape {
	if s == nil {
		return nil
	}
	return s.inner
}

var articles = map[string]string{
	"object": "an object", "array": "an array", "string": "a string", "number": "a number", "boolean": "true or false",
}

// check notes a fault if a value of that kind does not fit the shape.
func (s *shape) check(scan *scanner, kind string, raw []byte) {
	switch s.kind {
	case "":
		return
	case "custom":
		v := reflect.New(s.typ).Interface().(json.Unmarshaler)
		scan.noteError(v.UnmarshalJSON(raw), s.typ)
		at, ok := v.(*time.Time)
		if !ok {
			return
		}
		if _, err := instant.Parse(strings.Trim(string(raw), `"`)); err != nil && !at.IsZero() {
			scan.noteError(err, s.typ)
		} else if !writable(*at) {
			scan.note("out_of_range", "must be in a year up to 9999 in UTC")
		}
	case "text":
		var text string
		if kind != "string" || json.Unmarshal(raw, &text) != nil {
			scan.note("wrong_type", "must be a string")
			return
		}
		scan.noteError(reflect.New(s.typ).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)), s.typ)
	case kind:
		if kind == "number" {
			s.checkNumber(scan, string(raw))
		}
	default:
		scan.note("wrong_type", "must be %s, not %s", articles[s.kind], articles[kind])
	}
}

// writable reports whether RFC 3339 can write the time in UTC. The offset of a time near year 0 or 9999 can move it out of range.
func writable(at time.Time) bool {
	year := at.UTC().Year()
	return 0 <= year && year <= 9999
}

func (s *shape) checkNumber(scan *scanner, text string) {
	var err error
	switch bits := s.typ.Bits(); s.typ.Kind() {
	case reflect.Float32, reflect.Float64:
		_, err = strconv.ParseFloat(text, bits)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		_, err = strconv.ParseUint(text, 10, bits)
	default:
		_, err = strconv.ParseInt(text, 10, bits)
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		scan.note("out_of_range", "is too large a number")
	case err != nil:
		scan.note("wrong_type", "must be a whole number within its range")
	}
}

// noteError notes the error of a type's own unmarshaler. The pointers of a fault are relative to the value.
func (s *scanner) noteError(err error, t reflect.Type) {
	if err == nil {
		return
	}
	if e, ok := errors.AsType[*fault.Error](err); ok && len(e.Fields) > 0 {
		at := s.pointer()
		for _, f := range e.Fields {
			f.Pointer = at + f.Pointer
			s.fields = append(s.fields, f)
		}
		s.unknown = s.unknown || e.Status == 400
		return
	}
	if t == reflect.TypeFor[time.Time]() {
		s.note("invalid", "must be a time in the format of RFC 3339")
		return
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		s.note("wrong_type", "has the wrong type")
		return
	}
	s.note("invalid", "%s", err)
}
