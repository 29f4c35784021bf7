// Package archtest keeps the rules of the house: who may import whom, and that the core stays pure.
package archtest

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cairnrun/cairn"

// rule allows the packages below prefix to import, of this workspace, only what allow names.
type rule struct {
	prefix string
	why    string
	allow  []string
}

// The first rule whose prefix fits counts. Test files are free.
var rules = []rule{
	{"/proto", "contracts are imported by others and must not inherit our dependencies", []string{"/proto"}},
	{"/pkg/tool", "the SDK is imported by tool authors and must not inherit our dependencies", []string{"/pkg/tool"}},
	{"/pkg/yamldoc", "reads text, knows nothing of Cairn", []string{"/proto/exactjson"}},
	{"/pkg/plan", "the plan as data is the bottom of the house", []string{"/proto", "/pkg/plan"}},
	{"/pkg/run", "the pure core stands on plans only", []string{"/proto", "/pkg/plan", "/pkg/run"}},
	{"/pkg/bus", "transport knows contracts, not decisions", []string{"/proto", "/pkg/bus", "/pkg/telemetry", "/pkg/tool"}},
	{"/pkg/telemetry", "telemetry is used by all and uses only contracts", []string{"/proto", "/pkg/telemetry"}},
	{"/pkg/llm", "the model client is a plain HTTP client", []string{"/pkg/telemetry", "/pkg/llm", "/proto"}},
	{"/pkg/eventlog", "the log stores what the core decided and never decides", []string{"/proto", "/pkg/bus", "/pkg/eventlog"}},
	{"/pkg/replay", "replay feeds stored commits to the core, without a server", []string{"/proto", "/pkg/run", "/pkg/eventlog", "/pkg/replay"}},
	{"/services/gateway", "services never import each other: they talk through the bus", []string{"/proto", "/pkg", "/services/gateway"}},
	{"/services/planner", "services never import each other: they talk through the bus", []string{"/proto", "/pkg", "/services/planner"}},
	{"/services/executor", "services never import each other: they talk through the bus", []string{"/proto", "/pkg", "/services/executor"}},
	{"/services/toolrouter", "services never import each other: they talk through the bus", []string{"/proto", "/pkg", "/services/toolrouter"}},
	{"/services/runstore", "services never import each other: they talk through the bus", []string{"/proto", "/pkg", "/services/runstore"}},
	{"/examples", "examples use what users can use", []string{"/pkg/tool", "/examples"}},
	{"/cmd", "the binary assembles everything", []string{"/"}},
	{"/internal", "proofs and tools may use everything", []string{"/"}},
}

// pure lists the packages without clock, randomness, goroutine or I/O.
var pure = []string{"/pkg/plan", "/pkg/run"}

// impure are imports that would let the world in, each with its reason.
var impure = map[string]string{
	"os": "files and environment", "os/exec": "processes", "net": "network", "net/http": "network", "syscall": "the system",
	"math/rand": "randomness", "math/rand/v2": "randomness", "crypto/rand": "randomness", "log": "logging", "log/slog": "logging",
	"io/fs": "files", "runtime": "the scheduler", "context": "cancellation is not a decision", "sync/atomic": "concurrency",
}

// libraries are the only modules that the pure core may use, each with its reason.
var libraries = map[string]string{
	"google.golang.org/protobuf":            "the contracts' runtime",
	"github.com/google/cel-go":              "conditions and checks",
	"github.com/santhosh-tekuri/jsonschema": "schemas",
	"google.golang.org/genproto/googleapis": "CEL's types",
	"cel.dev/expr":                          "CEL's types",
}

type pkg struct {
	ImportPath string
	Dir        string
	Imports    []string
	Standard   bool
	GoFiles    []string
	Module     *struct{ Path string }
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,GoFiles", "work")
	cmd.Dir = root(t)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func below(path, prefix string) bool {
	return prefix == "/" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		here := strings.TrimPrefix(p.ImportPath, module)
		i := slices.IndexFunc(rules, func(r rule) bool { return below(here, r.prefix) })
		if i < 0 {
			if len(p.GoFiles) > 0 {
				t.Errorf("%s: no rule says what it may import; add one to archtest with its reason", p.ImportPath)
			}
			continue
		}
		for _, imp := range p.Imports {
			target, ours := strings.CutPrefix(imp, module)
			if ours && !slices.ContainsFunc(rules[i].allow, func(a string) bool { return below(target, a) }) {
				t.Errorf("%s imports %s: %s", here, target, rules[i].why)
			}
		}
	}
}

func TestCoreIsPure(t *testing.T) {
	checked := 0
	for _, p := range packages(t) {
		here := strings.TrimPrefix(p.ImportPath, module)
		if !slices.ContainsFunc(pure, func(prefix string) bool { return below(here, prefix) }) {
			continue
		}
		checked++
		for _, imp := range p.Imports {
			if why, bad := impure[imp]; bad {
				t.Errorf("%s imports %s: %s has no place in the core", here, imp, why)
			}
			if strings.Contains(strings.Split(imp, "/")[0], ".") && !strings.HasPrefix(imp, module) && !libraryAllowed(imp) {
				t.Errorf("%s imports %s: not among the core's libraries", here, imp)
			}
		}
		for _, f := range p.GoFiles {
			checkPureFile(t, filepath.Join(p.Dir, f))
		}
	}
	if checked < 2 {
		t.Fatalf("only %d pure packages were found", checked)
	}
}

func libraryAllowed(imp string) bool {
	for l := range libraries {
		if below(imp, l) {
			return true
		}
	}
	return false
}

// checkPureFile finds what imports do not show: goroutines, channels in use, the wall clock.
func checkPureFile(t *testing.T, path string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch v := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: a goroutine in the core", fset.Position(v.Pos()))
		case *ast.SelectStmt:
			t.Errorf("%s: a select in the core", fset.Position(v.Pos()))
		case *ast.SelectorExpr:
			if x, ok := v.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "Tick"}, v.Sel.Name) {
				t.Errorf("%s: time.%s in the core", fset.Position(v.Pos()), v.Sel.Name)
			}
		}
		return true
	})
}

// TestVocabulary keeps names that say nothing out of the tree.
func TestVocabulary(t *testing.T) {
	for _, p := range packages(t) {
		for _, bad := range []string{"util", "utils", "common", "helper", "helpers", "manager", "misc"} {
			if filepath.Base(p.ImportPath) == bad {
				t.Errorf("%s: a package name must say what is in it", p.ImportPath)
			}
		}
	}
}

// longest is the most lines that a file written by hand may have: one subject a file.
const longest = 600

func TestFilesAreShort(t *testing.T) {
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root(t):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.Contains(path, ".pb."):
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := strings.Count(string(b), "\n"); n > longest {
			t.Errorf("%s has %d lines, more than %d: does it hold one subject?", path, n, longest)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestArchitectureNamesWhatIsThere: a page that sends a newcomer to a file that is gone is worse than none.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, word := range strings.Split(string(text), "`") {
		if !strings.ContainsAny(word, "/") || strings.ContainsAny(word, " {}<>\n") || !strings.ContainsAny(word, ".") && !strings.HasPrefix(word, "cmd/") {
			continue
		}
		top := strings.SplitN(word, "/", 2)[0]
		if !slices.Contains([]string{"proto", "pkg", "services", "cmd", "internal", "docs", "deploy", "examples"}, top) {
			continue
		}
		named++
		if found, err := filepath.Glob(filepath.Join(root(t), word)); err != nil || len(found) == 0 {
			t.Errorf("ARCHITECTURE.md names %s, which is not there", word)
		}
	}
	if named < 30 {
		t.Errorf("only %d paths were found in ARCHITECTURE.md", named)
	}
}
