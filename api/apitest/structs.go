package apitest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Struct reports where the JSON of a Go type differs from the document's schema of that name: members that only one of
// them has; members that are optional (omitempty or omitzero) in only one of them; kinds that do not fit; pointers that
// are written as null where the schema has no null. Structs inside it are compared with the schemas inside the schema.
// Types that read or write themselves are taken as they are. A difference that begins with one of known, such as "Tenant.name ", is
// expected, and its absence is reported.
func Struct(t testing.TB, schemaName string, typ reflect.Type, known ...string) {
	t.Helper()
	differences := New(t).structure(schemaName, typ)
	for _, k := range known {
		isKnown := func(d string) bool { return strings.HasPrefix(d, k) }
		if !slices.ContainsFunc(differences, isKnown) {
			t.Errorf("%s has no difference %q any more", schemaName, k)
		}
		differences = slices.DeleteFunc(differences, isKnown)
	}
	for _, difference := range differences {
		t.Error(difference)
	}
}

func (c *Contract) structure(name string, typ reflect.Type) []string {
	schema := c.doc.Components.Schemas[name]
	if schema == nil {
		return []string{"openapi.yaml has no schema " + name}
	}
	var d differences
	d.object(name, schema.Value, typ)
	return d
}

type differences []string

func (d *differences) add(format string, args ...any) {
	*d = append(*d, fmt.Sprintf(format, args...))
}

// object compares a schema with a struct; where describes both to the reader.
func (d *differences) object(where string, schema *openapi3.Schema, typ reflect.Type) {
	members := map[string]reflect.StructField{}
	collect(members, typ)
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		if _, ok := members[name]; !ok {
			d.add("%s.%s is in openapi.yaml and not in %s", where, name, typ)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		property := schema.Properties[name]
		if property == nil {
			d.add("%s.%s is in %s and not in openapi.yaml", where, name, typ)
			continue
		}
		field := members[name]
		optional := strings.Contains(field.Tag.Get("json"), ",omit")
		if required := slices.Contains(schema.Required, name); required == optional {
			d.add("%s.%s is required: %t, and optional in %s: %t", where, name, required, typ, optional)
		}
		if field.Type.Kind() == reflect.Pointer && !optional && !nullable(property.Value) {
			d.add("%s.%s may be null in %s and not in openapi.yaml", where, name, typ)
		}
		d.value(where+"."+name, property.Value, field.Type)
	}
}

// collect puts the members of a struct's JSON under their names, those of embedded structs too.
func collect(members map[string]reflect.StructField, typ reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && bare(f.Type).Kind() == reflect.Struct {
			collect(members, bare(f.Type))
			continue
		}
		if !f.IsExported() || f.Tag.Get("json") == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		members[name] = f
	}
}

// value compares a schema with what is written for a type.
func (d *differences) value(where string, schema *openapi3.Schema, typ reflect.Type) {
	typ = bare(typ)
	if itself(typ) || typ.Kind() == reflect.Interface {
		return
	}
	if want := jsonType(typ); schema.Type != nil && !schema.Type.Includes(want) && !(want == "integer" && schema.Type.Includes("number")) {
		d.add("%s is %v in openapi.yaml and %s is %s", where, schema.Type.Slice(), typ, want)
		return
	}
	switch {
	case typ.Kind() == reflect.Struct && schema.Properties != nil:
		d.object(where, schema, typ)
	case typ.Kind() == reflect.Slice && schema.Items != nil:
		d.value(where+"[]", schema.Items.Value, typ.Elem())
	case typ.Kind() == reflect.Map && schema.AdditionalProperties.Schema != nil:
		d.value(where+"{}", schema.AdditionalProperties.Schema.Value, typ.Elem())
	}
}

func bare(typ reflect.Type) reflect.Type {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	return typ
}

// itself reports whether a type reads or writes itself.
func itself(typ reflect.Type) bool {
	p := reflect.PointerTo(typ)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.TextMarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func jsonType(typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	default:
		return "integer"
	}
}

// nullable reports whether a schema allows null.
func nullable(schema *openapi3.Schema) bool {
	if schema.Type.Includes("null") || schema.Type == nil && len(schema.OneOf) == 0 {
		return true
	}
	return slices.ContainsFunc(schema.OneOf, func(s *openapi3.SchemaRef) bool { return nullable(s.Value) })
}
