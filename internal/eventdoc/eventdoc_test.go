package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/run"
)

const root = "../.."

func TestDocumentIsFresh(t *testing.T) {
	want, err := Document(filepath.Join(root, protoDir))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, target))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Fatalf("%s is not what the contracts say; write it again with: go run ./internal/eventdoc", target)
	}
}

func TestEveryEventTypeIsDescribed(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join(root, target))
	if err != nil {
		t.Fatal(err)
	}
	bodies := (&runv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range bodies.Len() {
		body := bodies.Get(i)
		_, section, found := strings.Cut(string(doc), "\n## "+string(body.Message().Name())+"\n")
		if !found {
			t.Errorf("%s has no section", body.Message().Name())
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for j := range body.Message().Fields().Len() {
			if name := body.Message().Fields().Get(j).TextName(); !strings.Contains(section, "| `"+name+"` |") {
				t.Errorf("%s: field %s is not described", body.Message().Name(), name)
			}
		}
		if !strings.Contains(section, `"type": "cairn.run.v1.`+string(body.Message().Name())+`"`) {
			t.Errorf("%s has no example", body.Message().Name())
		}
	}
	if n := bodies.Len(); n != len(examples) {
		t.Errorf("%d examples for %d types", len(examples), n)
	}
}

// The comments are read line by line; what the generated code knows must all have been seen.
func TestCommentsAreFoundForWhatTheyStandAt(t *testing.T) {
	text, err := readComments(filepath.Join(root, protoDir), "cairn/run/v1/event.proto", "cairn/run/v1/state.proto")
	if err != nil {
		t.Fatal(err)
	}
	event := (&runv1.Event{}).ProtoReflect().Descriptor()
	for i := range event.Fields().Len() {
		if _, ok := text[event.Fields().Get(i).FullName()]; !ok {
			t.Errorf("%s was not seen", event.Fields().Get(i).FullName())
		}
	}
	for name, want := range map[string]string{
		"cairn.run.v1.Event.revision":                  "Dense from 1 within a run.",
		"cairn.run.v1.EVENT_KIND_RECORDED":             "Holds what was reported; replay feeds it back.",
		"cairn.run.v1.Value":                           "Value is a JSON value, inline or as an artifact.",
		"cairn.run.v1.ActionRequested.idempotency_key": "Over run, step, canonical arguments and generation; the same for every attempt.",
	} {
		found := false
		for at, comment := range text {
			found = found || string(at) == name && comment == want
		}
		if !found {
			t.Errorf("%s: not %q", name, want)
		}
	}
}

// Every rule that the core's source names is in its table, from which the document is made, and the table names no other.
func TestRulesAreThoseOfTheCore(t *testing.T) {
	got := rulesInSource(t, filepath.Join(root, "pkg", "run"))
	var want []string
	for _, r := range run.Rules() {
		if slices.Contains(want, r.Name) || r.Meaning == "" {
			t.Errorf("rule %s stands twice or says nothing", r.Name)
		}
		want = append(want, r.Name)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the core has %v\nthe table  %v", got, want)
	}
}

// rulesInSource collects the texts that are given to parameters and variables named rule, and to constants named rule….
func rulesInSource(t *testing.T, dir string) []string {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, p, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	parameter := map[string]int{}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			i := 0
			for _, p := range fn.Type.Params.List {
				for _, name := range p.Names {
					if name.Name == "rule" {
						parameter[fn.Name.Name] = i
					}
					i++
				}
			}
		}
	}
	found := map[string]bool{}
	text := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil && s != "" {
				found[s] = true
			}
		}
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				name := ""
				switch fn := n.Fun.(type) {
				case *ast.Ident:
					name = fn.Name
				case *ast.SelectorExpr:
					name = fn.Sel.Name
				}
				if i, ok := parameter[name]; ok && i < len(n.Args) {
					text(n.Args[i])
				}
			case *ast.ValueSpec:
				for i, name := range n.Names {
					if strings.HasPrefix(name.Name, "rule") && i < len(n.Values) {
						text(n.Values[i])
					}
				}
			case *ast.AssignStmt:
				for i, l := range n.Lhs {
					if id, ok := l.(*ast.Ident); ok && id.Name == "rule" && i < len(n.Rhs) {
						text(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	out := make([]string, 0, len(found))
	for name := range found {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
