package runfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/cairnrun/cairn/pkg/run/mode"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestARunFileIsReadExactly(t *testing.T) {
	path := write(t, "run.yaml", `goal: 下单
input: {big: 9007199254740993, price: 9011.00, none: null}
labels: {team: shop, city: 上海}
limits: {max_parallel: 2, max_duration: 90s}
mode: plan-and-solve
permissions: [pay]
allowed_tools: [stock.check]
request_id: order-17
tools: [demo/order]
templates: {templates: []}
`)
	f, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &runv1.RunSpec{
		Goal: "下单", Input: &planv1.JsonText{Text: `{"big":9007199254740993,"price":9011.00,"none":null}`},
		Labels: []*runv1.Label{{Key: "city", Value: "上海"}, {Key: "team", Value: "shop"}},
		Mode:   "plan-and-solve", Permissions: []string{"pay"}, AllowedTools: []string{"stock.check"},
	}
	limits := f.Spec.GetLimits()
	f.Spec.Limits = nil
	if diff := cmp.Diff(want, f.Spec, protocmp.Transform()); diff != "" {
		t.Errorf("spec (-want +got)\n%s", diff)
	}
	if limits.GetMaxParallel() != 2 || limits.GetMaxDuration().AsDuration().Seconds() != 90 {
		t.Errorf("limits %v", limits)
	}
	if f.RequestID != "order-17" || len(f.Tools) != 1 || string(f.InlineTemplates) != `{"templates":[]}` {
		t.Errorf("got %+v", f)
	}
}

func TestAPlanDocumentIsAPlan(t *testing.T) {
	for _, text := range []string{"steps:\n- id: a\n", `{"steps":[{"id":"a"}]}`} {
		f, err := Load(write(t, "plan.json", text))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Spec.GetPlan().GetText(); got != `{"steps":[{"id":"a"}]}` {
			t.Errorf("plan %s", got)
		}
	}
}

func TestWordsAreAGoal(t *testing.T) {
	for _, goal := range []string{"下单 1 台 iPhone", "order", "a plan.yaml of sorts"} {
		f, err := Load(goal)
		if err != nil || f.Spec.GetGoal() != goal {
			t.Errorf("%q: %v, %v", goal, f, err)
		}
	}
}

func TestBadFilesAreRefusedWithPlaceAndNextStep(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"unknown field":      {"goal: g\ngaol: x\n", []string{"run.yaml:2", `unknown field "gaol"`, "a run file has"}},
		"unknown limit":      {"goal: g\nlimits:\n  max_stepz: 3\n", []string{"run.yaml:2", "max_stepz"}},
		"wrong type":         {"goal: g\nlimits: {max_steps: many}\n", []string{"run.yaml:2", "max_steps"}},
		"goal is a list":     {"goal: [a]\n", []string{"run.yaml:1", "goal"}},
		"input is a list":    {"goal: g\ninput: [1]\n", []string{"run.yaml:2", "mapping"}},
		"plan is text":       {"plan: text\n", []string{"run.yaml:1", "steps:"}},
		"labels are a list":  {"goal: g\nlabels: [a]\n", []string{"run.yaml:2", "{team: shop}"}},
		"label is a number":  {"goal: g\nlabels: {a: 1}\n", []string{"run.yaml:2", "text"}},
		"tools are text":     {"goal: g\ntools: demo/order\n", []string{"run.yaml:2", "[demo/order]"}},
		"request id":         {"goal: g\nrequest_id: {}\n", []string{"run.yaml:2", "text"}},
		"no templates file":  {"goal: g\ntemplates: nowhere.yaml\n", []string{"run.yaml:2", "nowhere.yaml", "relative to the run file"}},
		"templates a number": {"goal: g\ntemplates: 3\n", []string{"run.yaml:2", "path"}},
		"neither":            {"labels: {a: b}\n", []string{"run.yaml", "goal:", "plan:"}},
		"both":               {"goal: g\nplan: {steps: []}\n", []string{"run.yaml:1", "has both goal: ", "keep one"}},
		"not a mapping":      {"- a\n", []string{"run.yaml", "no mapping"}},
		"empty":              {"", []string{"run.yaml"}},
		"not YAML":           {"goal: [", []string{"run.yaml"}},
		"a key twice":        {"goal: a\ngoal: b\n", []string{"run.yaml", "goal"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(write(t, "run.yaml", c.text))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in: %v", w, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	for argument, want := range map[string]string{
		"nowhere.yaml": "no file nowhere.yaml", "./nowhere": "no file", " ": "empty", t.TempDir(): "is a folder",
	} {
		if _, err := Load(argument); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", argument, err, want)
		}
	}
}

func TestFilesBeyondTheLimitAreRefused(t *testing.T) {
	fill := func(n int) string { return "goal: g # " + strings.Repeat("x", n-len("goal: g # ")) }
	if _, err := Load(write(t, "run.yaml", fill(MaxBytes))); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := Load(write(t, "run.yaml", fill(MaxBytes+1))); err == nil || !strings.Contains(err.Error(), "over the limit") {
		t.Errorf("over the limit: %v", err)
	}
}

func TestOverrides(t *testing.T) {
	f := &File{Spec: &runv1.RunSpec{
		Input:  &planv1.JsonText{Text: `{"stock":0,"price":9011.00,"html":"<b>"}`},
		Labels: []*runv1.Label{{Key: "team", Value: "shop"}},
	}}
	o := Overrides{Vars: []string{"stock=9007199254740993", "city=上海 <浦东>", `list=[1, 2]`}, Labels: []string{"team=x", "n="}, RequestID: "r1"}
	if err := o.Apply(f); err != nil {
		t.Fatal(err)
	}
	want := `{"city":"上海 <浦东>","html":"<b>","list":[1,2],"price":9011.00,"stock":9007199254740993}`
	if got := f.Spec.GetInput().GetText(); got != want {
		t.Errorf("input %s\nwant  %s", got, want)
	}
	labels := []*runv1.Label{{Key: "team", Value: "x"}, {Key: "n"}}
	if diff := cmp.Diff(labels, f.Spec.GetLabels(), protocmp.Transform()); diff != "" || f.RequestID != "r1" {
		t.Errorf("labels %s, request %q", diff, f.RequestID)
	}
	if err := (Overrides{Input: "@" + write(t, "in.yaml", "a: 1.50\n")}).Apply(f); err != nil || f.Spec.GetInput().GetText() != `{"a":1.50}` {
		t.Errorf("input from a file: %s, %v", f.Spec.GetInput().GetText(), err)
	}
	for _, bad := range []Overrides{{Vars: []string{"novalue"}}, {Vars: []string{"=x"}}, {Labels: []string{"novalue"}}, {Input: "[1]"}, {Input: "{"}, {Input: "@nowhere"}} {
		if err := bad.Apply(f); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestEveryFieldIsDescribedAndTheExampleIsRead(t *testing.T) {
	text, err := os.ReadFile("../../../docs/runfile.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		if !strings.Contains(string(text), "| `"+f+"` | ") {
			t.Errorf("docs/runfile.md does not describe %s", f)
		}
	}
	if want := "the default is `" + mode.Default + "`"; !strings.Contains(string(text), want) {
		t.Errorf("docs/runfile.md does not say %q", want)
	}
	parts := strings.Split(string(text), "```")
	example := strings.Replace(strings.TrimPrefix(parts[1], "yaml\n"), "order-templates.yaml", "../../../examples/order-templates.yaml", 1)
	if f, err := Parse("run.yaml", []byte(example)); err != nil || f.Spec.GetGoal() == "" || f.Spec.GetLimits().GetMaxParallel() != 4 || len(f.Tools) != 1 {
		t.Errorf("the example: %v, %v", f, err)
	}
}
