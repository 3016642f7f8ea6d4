package arch

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

const mostFields = 10 // of a service

// noServices are rows and settings, and the two types that make and start the parts of a process. They are no services, although they have
// a method that takes a context.
var noServices = []string{"cmd/carillon.app", "dispatch.Config", "dispatch.Dispatch", "operations.Operation", "schedules.row"}

// A service stays narrow: a reader sees at once what it uses and what it remembers.
func TestServicesStayNarrow(t *testing.T) {
	t.Parallel()
	for name, fields := range services(t) {
		if fields > mostFields {
			t.Errorf("%s has too many fields: %d, and it may have %d", name, fields, mostFields)
		}
	}
}

func widestService(t *testing.T) measure {
	t.Helper()
	m := measure{what: "fields of the widest service", goal: mostFields}
	found := services(t)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if found[name] > m.value {
			m.value, m.where = found[name], []string{name}
		}
	}
	return m
}

// services returns the number of fields of each service. A service is a struct with a method that takes a context. If it embeds a struct
// of the same package, the fields of that struct count as its own.
func services(t *testing.T) map[string]int {
	t.Helper()
	structs, serves := map[string]*ast.StructType{}, map[string]bool{}
	for _, s := range ofServer(t) {
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if typ, _, of := strings.Cut(nameOf(d), "."); of && slices.Contains(namesOf(d.Type.Params), "context.Context") {
					serves[s.folder()+"."+typ] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if named, ok := spec.(*ast.TypeSpec); ok {
						structName := s.folder() + "." + named.Name.Name
						typ, ok := named.Type.(*ast.StructType)
						if other := structs[structName]; ok && (other == nil || len(other.Fields.List) < len(typ.Fields.List)) { // other is for another operating system
							structs[structName] = typ
						}
					}
				}
			}
		}
	}
	found := map[string]int{}
	for name := range structs {
		if serves[name] && !slices.Contains(noServices, name) {
			found[name] = fieldsOf(name, structs)
		}
	}
	return found
}

// fieldsOf returns the number of a struct's fields.
func fieldsOf(name string, structs map[string]*ast.StructType) (n int) {
	folder := name[:strings.LastIndexByte(name, '.')+1]
	for _, field := range structs[name].Fields.List {
		embedded := field.Type
		if pointed, ok := embedded.(*ast.StarExpr); ok {
			embedded = pointed.X
		}
		if typ, ok := embedded.(*ast.Ident); ok && len(field.Names) == 0 && structs[folder+typ.Name] != nil {
			n += fieldsOf(folder+typ.Name, structs)
			continue
		}
		n += max(1, len(field.Names))
	}
	return n
}
