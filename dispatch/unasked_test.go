package dispatch_test

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/carillonhq/carillon/"

// source holds the type-checked packages of this module. Other packages count as empty: what they declare has no type here.
type source struct {
	t        *testing.T
	files    *token.FileSet
	packages map[string]*types.Package
	info     types.Info
	uses     map[types.Object][]types.Object // what a function, constant or variable names
	texts    map[types.Object][][]string     // its SQL texts; a text that is not constant is in parts
	named    map[string]types.Object         // such as "dispatch.Dispatch.Start"
	guesses  map[types.Object][]string       // what a function names of a value without a known type, such as a row that pgx collects
}

// unaskedSQL returns the SQL texts of the functions that some functions reach by calls, by the functions' names.
func unaskedSQL(t *testing.T, roots ...string) map[string][][]string {
	t.Helper()
	s := &source{
		t: t, files: token.NewFileSet(), packages: map[string]*types.Package{},
		info: types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}},
		uses: map[types.Object][]types.Object{}, texts: map[types.Object][][]string{}, named: map[string]types.Object{}, guesses: map[types.Object][]string{},
	}
	for _, room := range []string{"dispatch", "schedules/subjects"} { // dispatch gets the function that ends erasures from subjects
		if _, err := s.Import(module + room); err != nil {
			t.Fatal(err)
		}
	}
	type method struct {
		of   *types.Package
		name string
	}
	methods := map[method][]types.Object{}
	for _, o := range s.named {
		if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
			methods[method{f.Pkg(), f.Name()}] = append(methods[method{f.Pkg(), f.Name()}], f)
		}
	}
	reached := map[types.Object]bool{}
	var reach func(types.Object)
	reach = func(o types.Object) {
		if !reached[o] {
			reached[o] = true
			for _, used := range s.uses[o] {
				reach(used)
			}
			for _, name := range s.guesses[o] {
				for _, m := range methods[method{o.Pkg(), name}] {
					reach(m)
				}
			}
		}
	}
	for _, root := range roots {
		if s.named[root] == nil {
			t.Fatalf("there is no function %s", root)
		}
		reach(s.named[root])
	}
	found := map[string][][]string{}
	for name, o := range s.named {
		if reached[o] && len(s.texts[o]) > 0 {
			found[name] = s.texts[o]
		}
	}
	return found
}

// Import reads a package of this module, and returns an empty package for any other path. An unknown type is no error.
func (s *source) Import(path string) (*types.Package, error) {
	if p := s.packages[path]; p != nil {
		return p, nil
	}
	below, ours := strings.CutPrefix(path, module)
	if !ours {
		p := types.NewPackage(path, filepath.Base(path))
		p.MarkComplete()
		s.packages[path] = p
		return p, nil
	}
	names, err := filepath.Glob(filepath.Join("..", below, "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(s.files, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	config := types.Config{Importer: s, Error: func(error) {}} // it goes on after an error
	p, _ := config.Check(path, s.files, files, &s.info)
	s.packages[path] = p
	for _, f := range files {
		for _, d := range f.Decls {
			s.declared(d)
		}
	}
	return p, nil
}

func (s *source) declared(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		s.read(d.Name, d)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range v.Names {
					s.read(name, v)
				}
			}
		}
	}
}

// read records which objects a declaration uses, and its SQL texts.
func (s *source) read(name *ast.Ident, node ast.Node) {
	o := s.info.Defs[name]
	if o == nil {
		return
	}
	full := name.Name
	if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
		of := f.Signature().Recv().Type().String()
		full = of[strings.LastIndexAny(of, "./*")+1:] + "." + full
	}
	s.named[o.Pkg().Name()+"."+full] = o
	var within ast.Node // the text that was noted last
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			used := s.info.Uses[n]
			if f, ok := used.(*types.Func); ok {
				used = f.Origin()
			}
			if used != nil {
				s.uses[o] = append(s.uses[o], used)
			} else if s.info.Defs[n] == nil {
				s.guesses[o] = append(s.guesses[o], n.Name)
			}
		case *ast.BasicLit, *ast.BinaryExpr:
			if within != nil && within.Pos() <= n.Pos() && n.End() <= within.End() {
				break
			}
			if parts := s.parts(n.(ast.Expr)); len(parts) > 0 && isSQL.MatchString(parts[0]+" ") {
				s.texts[o], within = append(s.texts[o], parts), n
			}
		}
		return true
	})
}

// isSQL matches statements that have a plan.
var isSQL = regexp.MustCompile(`^\(? ?(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH) `)

// parts are the constant parts of a text, each with single spaces. What is filled in separates them.
func (s *source) parts(e ast.Expr) []string {
	if v := s.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return cut(constant.StringVal(v))
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return cut(text)
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return append(s.parts(e.X), s.parts(e.Y)...)
		}
	}
	return nil
}

func cut(text string) (parts []string) {
	for _, part := range regexp.MustCompile(`%[ds]|\b(TENANT|MOMENT|FROM_I|SHARD|FLOOR|LOWER|STUCK)\b`).Split(strings.Join(strings.Fields(text), " "), -1) {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
