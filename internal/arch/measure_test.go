package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// measure is a number that says how well the code is divided into rooms.
type measure struct {
	what  string
	value int
	goal  int      // at most
	where []string // what counts, or the place of the largest
}

// TestMeasures prints all measures with -v:
//
//	go test ./internal/arch -run TestMeasures -v
func TestMeasures(t *testing.T) {
	t.Parallel()
	for _, m := range []measure{
		wrongArrows(t), lateAssignments(t), counterWriters(t), scheduleInserts(t),
		mostOfAFunction(t), longFunctions(t), longFiles(t), domainWithHTTP(t), signaturesWithHTTP(t),
		largestPackage(t), widestService(t),
	} {
		verdict := "met"
		if m.value > m.goal {
			verdict = "not met"
		}
		t.Logf("%4d  %s (goal: at most %d, %s) %s", m.value, m.what, m.goal, verdict, strings.Join(m.where, ", "))
	}
}

// A service is complete when its constructor returns: nothing is assigned to it later.
func TestNothingIsAssignedAfterConstruction(t *testing.T) {
	t.Parallel()
	if m := lateAssignments(t); m.value > 0 {
		t.Errorf("assigned after construction: %v", m.where)
	}
}

// wrongArrows measures the imports that the table rooms does not allow.
func wrongArrows(t *testing.T) measure {
	t.Helper()
	wrong := map[string]bool{}
	for _, s := range ofServer(t) {
		for _, imported := range s.imports() {
			if !permitted(imported, rooms[s.folder()]) {
				wrong[s.folder()+" → "+strings.TrimPrefix(imported, module+"/")] = true
			}
		}
	}
	return counted("arrows against the order between rooms", 0, slices.Sorted(maps.Keys(wrong)))
}

// ofServer returns the sources of the server: no tools, no SDK.
func ofServer(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(sources(t)), func(s source) bool {
		return within(s.name, "loadtest") || within(s.name, "sdk-go") || ownModule("../../"+s.folder())
	})
}

func counted(what string, goal int, where []string) measure {
	return measure{what, len(where), goal, where}
}

func lateAssignments(t *testing.T) measure {
	t.Helper()
	const file = "cmd/carillon/wire.go"
	var found []string
	for _, s := range sources(t) {
		if s.name != file {
			continue
		}
		for _, field := range assignedLate(s.file) {
			found = append(found, fmt.Sprintf("line %d: %s", s.set.Position(field.Pos()).Line, field.Sel.Name))
		}
	}
	return counted("assignments after construction in "+file, 0, found)
}

// assignedLate finds the fields to which a file assigns after something else has constructed their value. A function constructs its
// named results itself.
func assignedLate(file *ast.File) (fields []*ast.SelectorExpr) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		made := results(f)
		ast.Inspect(f, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for _, to := range a.Lhs {
				if field, ok := to.(*ast.SelectorExpr); ok && !madeHere(field.X, made) {
					fields = append(fields, field)
				}
			}
			return true
		})
	}
	return fields
}

func madeHere(x ast.Expr, made map[string]bool) bool {
	of, ok := x.(*ast.Ident)
	return ok && made[of.Name]
}

func TestLateAssignmentsAreFound(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "wire.go", `package main
		func wire() (p parts, err error) {
			p.ticks = dispatch.New()
			p.ticks.Erase = erase
			work := operations.New()
			work.Queue = queue
			return p, nil
		}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if late := assignedLate(file); len(late) != 2 || late[0].Sel.Name != "Erase" || late[1].Sel.Name != "Queue" {
		t.Errorf("got %v, want Erase and Queue", late)
	}
}

// results returns the names of a function's results.
func results(f *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	if f.Type.Results == nil {
		return names
	}
	for _, field := range f.Type.Results.List {
		for _, name := range field.Names {
			names[name.Name] = true
		}
	}
	return names
}

// counterWriters finds the packages whose SQL moves the counters of schedule_state.
func counterWriters(t *testing.T) measure {
	t.Helper()
	folders := map[string]bool{}
	texts(t, func(s source, text string) {
		if s.folder() == "dispatch/state" && strings.Contains(text, "UPDATE schedule_state") {
			folders[s.folder()] = true
		} else if counters, err := countersSet(text); err != nil || len(counters) > 0 {
			folders[s.folder()] = true
		}
	})
	return counted("packages that write the counters of schedule_state", 1, slices.Sorted(maps.Keys(folders)))
}

var insertsSchedule = regexp.MustCompile(`\bINSERT INTO schedule\s`)

// scheduleInserts finds the statements that store a new schedule: one for each way to write a schedule.
func scheduleInserts(t *testing.T) measure {
	t.Helper()
	var found []string
	texts(t, func(s source, text string) {
		if insertsSchedule.MatchString(text) {
			found = append(found, s.name)
		}
	})
	return counted("statements that insert a schedule", 1, found)
}

func mostOfAFunction(t *testing.T) measure {
	t.Helper()
	m := measure{what: "parameters of a function, most", goal: mostParameters}
	functions(t, func(name string, _, parameters int) {
		switch {
		case parameters > m.value:
			m.value, m.where = parameters, []string{name}
		case parameters == m.value && parameters > mostParameters:
			m.where = append(m.where, name)
		}
	})
	if m.value <= mostParameters {
		m.where = nil
	}
	return m
}

func longFunctions(t *testing.T) measure {
	t.Helper()
	var found []string
	functions(t, func(name string, lines, _ int) {
		if lines > mostBody {
			found = append(found, name)
		}
	})
	return counted(fmt.Sprintf("functions over %d lines", mostBody), 0, found)
}

func longFiles(t *testing.T) measure {
	t.Helper()
	var found []string
	for _, s := range sources(t) {
		if s.lines > mostLines {
			found = append(found, s.name)
		}
	}
	return counted(fmt.Sprintf("files over %d lines", mostLines), 0, found)
}

func domainWithHTTP(t *testing.T) measure {
	t.Helper()
	var found []string
	for _, s := range sources(t) {
		if ofDomain(s) && speaksHTTP(s) {
			found = append(found, s.name)
		}
	}
	return counted("files of the domain that import Echo or net/http", 0, found)
}

// typeOfHTTP matches a type of a request or an answer.
var typeOfHTTP = regexp.MustCompile(`\b(http|echo|web)\.(Reply|Precondition|Once|Context|Request|Response|ResponseWriter|Header)\b`)

// signaturesWithHTTP finds functions of the domain that take or return types of HTTP.
func signaturesWithHTTP(t *testing.T) measure {
	t.Helper()
	var found []string
	for _, s := range ofServer(t) {
		if !ofDomain(s) {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && slices.ContainsFunc(namesOf(f.Type), typeOfHTTP.MatchString) {
				found = append(found, s.folder()+"."+nameOf(f))
			}
		}
	}
	return counted("functions of the domain with types of HTTP in their signature", 0, found)
}

// namesOf returns the qualified types within a type, such as http.Header.
func namesOf(typ ast.Node) (names []string) {
	ast.Inspect(typ, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := selector.X.(*ast.Ident); ok {
				names = append(names, pkg.Name+"."+selector.Sel.Name)
			}
		}
		return true
	})
	return names
}

func largestPackage(t *testing.T) measure {
	t.Helper()
	files := map[string]int{}
	m := measure{what: "files of the largest package", goal: 40}
	for _, s := range ofServer(t) {
		if files[s.folder()]++; files[s.folder()] > m.value {
			m.value, m.where = files[s.folder()], []string{s.folder()}
		}
	}
	return m
}
