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

// shape is what a Go type expects of a JSON value: which kind, and for an object which members, named exactly. A nil
// shape expects nothing.
type shape struct {
	typ      reflect.Type
	kind     string // as the scanner names them; "" for any, "custom" and "text" for types that read themselves
	members  map[string]*shape
	rules    map[string]rule // of the members
	inner    *shape          // of the elements of an array, or of the members of an object with free names
	verbatim bool
}

// rule is what holds for the place that a value is in: a member of an object, an element of a list, or the whole text.
type rule struct {
	optional bool // it may be left out
	null     bool // it may be null: its field is tagged null:"yes"
	said     bool // it is a text that says something where it is there at all: "" does not stand for leaving it out
	most     int  // elements of a list; 0: any number
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
	for t, s := range made { // only whole ones are shown to others
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

// embed takes the fields of a struct as members; those of a struct embedded in it come after, and never cover one.
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
				said: optional && f.Type.Kind() == reflect.String && f.Tag.Get("empty") != "yes",
				most: mostElements(f),
			}
		}
	}
	for _, t := range inside {
		if t.Kind() == reflect.Struct {
			s.embed(t, made)
		}
	}
}

// mostElements is what the tag "most" of a list allows. The scanner stops there, so that a long list of empty objects is never
// read into Go values, which take many times its bytes.
func mostElements(f reflect.StructField) int {
	most, _ := strconv.Atoi(f.Tag.Get("most")) // 0 without the tag
	return most
}

// raw reports whether the value is kept as it was sent.
func (s *shape) raw() bool { return s != nil && s.verbatim }

// member says what the member of an object is expected to be, and whether there may be one of that name.
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

// hold notes where a value of that kind is not what the shape expects.
func (s *shape) hold(scan *scanner, kind string, raw []byte) {
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
			scan.note("out_of_range", "must be of a year up to 9999 in UTC")
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
			s.holdNumber(scan, string(raw))
		}
	default:
		scan.note("wrong_type", "must be %s, not %s", articles[s.kind], articles[kind])
	}
}

// writable reports whether an instant can be written in UTC by RFC 3339: an offset may take one beyond its years.
func writable(at time.Time) bool {
	year := at.UTC().Year()
	return 0 <= year && year <= 9999
}

func (s *shape) holdNumber(scan *scanner, text string) {
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
		scan.note("wrong_type", "must be a whole number that is not out of range")
	}
}

// noteError notes what a type that reads itself says of its value. Its pointers are taken from the value's.
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
		s.note("invalid", "must be an instant as RFC 3339 writes it")
		return
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		s.note("wrong_type", "is of a type that does not fit here")
		return
	}
	s.note("invalid", "%s", err)
}
