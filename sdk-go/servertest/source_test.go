package servertest

import (
	"go/ast"
	"go/parser"
	source "go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
)

// parsed are the files of the SDK, without its tests.
func parsed(t *testing.T) []*ast.File {
	t.Helper()
	folder := os.DirFS("..")
	names, err := fs.Glob(folder, "*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("found %d files: %v", len(names), err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(source.NewFileSet(), filepath.Join("..", name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// inJSON reports whether a struct names a member of JSON.
func inJSON(typ *ast.StructType) bool {
	return slices.ContainsFunc(typ.Fields.List, func(f *ast.Field) bool {
		return f.Tag != nil && strings.Contains(f.Tag.Value, `json:"`) && !strings.Contains(f.Tag.Value, `json:"-"`)
	})
}

// TestEachCodeIsDocumented finds the codes of the SDK in the document's list.
func TestEachCodeIsDocumented(t *testing.T) {
	t.Parallel()
	found := 0
	for _, file := range parsed(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if typ, named := specType(spec); !ok || !named || typ != "Code" {
				return true
			}
			found++
			apitest.Fits(t, "Code", []byte(spec.Values[0].(*ast.BasicLit).Value))
			return true
		})
	}
	if found == 0 {
		t.Error("found no code")
	}
}

// specType returns the name of the type of constants.
func specType(spec *ast.ValueSpec) (string, bool) {
	if spec == nil {
		return "", false
	}
	typ, ok := spec.Type.(*ast.Ident)
	if !ok {
		return "", false
	}
	return typ.Name, true
}

// TestEachExportedNameHasAComment reads the source of the SDK: types, functions, methods of exported types, constants and variables.
func TestEachExportedNameHasAComment(t *testing.T) {
	t.Parallel()
	for _, file := range parsed(t) {
		for _, d := range file.Decls {
			for name, comment := range exported(d) {
				if comment == nil || strings.TrimSpace(comment.Text()) == "" {
					t.Errorf("%s has no comment", name)
				}
			}
		}
	}
}

// exported returns the exported names of a declaration with their comments.
func exported(d ast.Decl) map[string]*ast.CommentGroup {
	names := map[string]*ast.CommentGroup{}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type))) {
			names[d.Name.Name] = d.Doc
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					names[spec.Name.Name] = first(spec.Doc, d.Doc)
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() {
						names[name.Name] = first(spec.Doc, spec.Comment, d.Doc)
					}
				}
			}
		}
	}
	return names
}

// receiver returns the name of a method's type.
func receiver(typ ast.Expr) string {
	switch typ := typ.(type) {
	case *ast.StarExpr:
		return receiver(typ.X)
	case *ast.IndexExpr:
		return receiver(typ.X)
	case *ast.Ident:
		return typ.Name
	}
	return ""
}

func first(comments ...*ast.CommentGroup) *ast.CommentGroup {
	for _, c := range comments {
		if c != nil {
			return c
		}
	}
	return nil
}
