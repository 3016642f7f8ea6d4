package arch

import (
	"go/ast"
	"testing"
)

// The largest that a file, a function and a list of parameters may be.
const (
	mostLines      = 400 // of a file
	mostBody       = 60  // lines of a function
	mostParameters = 6
)

// large lists the files, functions and lists of parameters that are larger, with their size. A size may fall and an entry may be removed,
// but no size may rise and no entry may be added.
var large = map[string]int{}

// Files, functions and lists of parameters stay small.
func TestNothingGrowsLarge(t *testing.T) {
	t.Parallel()
	found := map[string]int{}
	for _, s := range sources(t) {
		if s.lines > mostLines {
			found[s.name] = s.lines
		}
	}
	functions(t, func(name string, lines, parameters int) {
		if lines > mostBody {
			found[name+" lines"] = lines
		}
		if parameters > mostParameters {
			found[name+" parameters"] = parameters
		}
	})
	for name, size := range found {
		if most, known := large[name]; !known || size > most {
			t.Errorf("%s is too large: %d, and it may be %d", name, size, most)
		}
	}
	for name, size := range large {
		if found[name] < size {
			t.Errorf("the entry of %s is out of date: it is %d and not %d", name, found[name], size)
		}
	}
}

// functions calls visit for each function, with its name after its folder's.
func functions(t *testing.T, visit func(name string, lines, parameters int)) {
	t.Helper()
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
				visit(s.folder()+"."+nameOf(f), lines, f.Type.Params.NumFields())
			}
		}
	}
}

// nameOf returns a function's name, with its receiver's type before it.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	for {
		switch typ := of.(type) {
		case *ast.StarExpr:
			of = typ.X
		case *ast.IndexExpr:
			of = typ.X
		case *ast.IndexListExpr:
			of = typ.X
		case *ast.Ident:
			return typ.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}
