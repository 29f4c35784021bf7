package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

func viewOf(table map[string]Progress) View { return func(id string) Progress { return table[id] } }

// basePlan is at version 2: s1 and s2 are done, s3 failed and is open, s4 waits for it, s5 is under way.
func basePlan(t *testing.T) (*planv1.Plan, View) {
	t.Helper()
	p, _ := mustRead(t, `{"version":2,"id":"p2","goal":"g","assumptions":["in stock"],"steps":[
	 {"id":"s1","tool":"echo","arguments":{"b":1,"a":2}},
	 {"id":"s2","title":"two","tool":"echo","arguments":{"x":{"$ref":"steps.s1.result.a"}}},
	 {"id":"s3","tool":"stock.check","arguments":{"sku":"p-256"},"depends_on":["s2"]},
	 {"id":"s4","tool":"echo","arguments":{"n":{"$ref":"steps.s3.result.stock"}}},
	 {"id":"s5","tool":"echo"}]}`, testEnvironment())
	return p, viewOf(map[string]Progress{"s1": Finished, "s2": Finished, "s5": UnderWay})
}

func patchOf(t *testing.T, doc string) *planv1.Patch {
	t.Helper()
	p, findings := ParsePatch([]byte(doc))
	if HasErrors(findings) {
		t.Fatal(show(findings))
	}
	return p
}

func TestApply(t *testing.T) {
	base, view := basePlan(t)
	before := proto.Clone(base)
	patch := patchOf(t, `{"base_version":2,"reason":"out of stock","goal":"h","assumptions":["128G will do"],
	 "update":[{"id":"s3","tool":"stock.check","arguments":{"sku":"p-128"},"depends_on":["s2"]}],
	 "remove":["s4"],"add":[{"id":"s6","tool":"echo","arguments":{"n":{"$ref":"steps.s3.result.stock"}}}]}`)
	unchanged := proto.Clone(patch)
	next, findings := Apply(base, patch, view, testEnvironment())
	if HasErrors(findings) {
		t.Fatal(show(findings))
	}
	want, _ := Parse([]byte(`{"id":"p3","version":3,"parent_version":2,"goal":"h","assumptions":["128G will do"],"steps":[
	 {"id":"s1","tool":"echo","arguments":{"b":1,"a":2}},
	 {"id":"s2","title":"two","tool":"echo","arguments":{"x":{"$ref":"steps.s1.result.a"}},"depends_on":["s1"]},
	 {"id":"s3","tool":"stock.check","arguments":{"sku":"p-128"},"depends_on":["s2"]},
	 {"id":"s5","tool":"echo"},
	 {"id":"s6","tool":"echo","arguments":{"n":{"$ref":"steps.s3.result.stock"}},"depends_on":["s3"]}]}`))
	if diff := cmp.Diff(want, next, protocmp.Transform()); diff != "" {
		t.Errorf("the next version (-want +got):\n%s", diff)
	}
	if notes := with(findings, codeDependencyAdded); len(notes) != 1 || notes[0].GetPointer() != "/add/0/depends_on" {
		t.Errorf("notes:\n%s", show(findings))
	}
	if !proto.Equal(base, before) || !proto.Equal(patch, unchanged) {
		t.Error("Apply changed what it was given")
	}
}

func TestApplyRefuses(t *testing.T) {
	for _, c := range []struct{ name, patch, code, pointer string }{
		{"stale base", `{"base_version":1,"remove":["s4"]}`, codeVersionConflict, "/base_version"},
		{"change of a finished step", `{"base_version":2,"update":[{"id":"s1","tool":"echo","arguments":{"a":3,"b":1}}]}`, codeStepImmutable, "/update/0"},
		{"other tool for a finished step", `{"base_version":2,"update":[{"id":"s1","tool":"now"}]}`, codeStepImmutable, "/update/0"},
		{"adding a finished step otherwise", `{"base_version":2,"add":[{"id":"s1","tool":"echo"}]}`, codeStepImmutable, "/add/0"},
		{"removal of a finished step", `{"base_version":2,"remove":["s1"]}`, codeStepImmutable, "/remove/0"},
		{"change under way", `{"base_version":2,"update":[{"id":"s5","tool":"echo","arguments":{"x":1}}]}`, codeStepUnderWay, "/update/0"},
		{"removal under way", `{"base_version":2,"remove":["s5"]}`, codeStepUnderWay, "/remove/0"},
		{"update of what is not there", `{"base_version":2,"update":[{"id":"s9","tool":"echo"}]}`, codeUnknownStep, "/update/0/id"},
		{"removal of what is not there", `{"base_version":2,"remove":["s44"]}`, codeUnknownStep, "/remove/0"},
		{"adding what is there", `{"base_version":2,"add":[{"id":"s4","tool":"now"}]}`, codeDuplicateID, "/add/0/id"},
		{"naming a step twice", `{"base_version":2,"update":[{"id":"s4","tool":"now"}],"remove":["s4"]}`, codeDuplicateID, "/remove/0"},
		{"adding a step twice", `{"base_version":2,"add":[{"id":"n","tool":"now"},{"id":"n","tool":"now"}]}`, codeDuplicateID, "/add/1"},
		{"unknown tool", `{"base_version":2,"add":[{"id":"n","tool":"ech"}]}`, codeUnknownTool, "/add/0/action/name"},
		{"missing argument", `{"base_version":2,"update":[{"id":"s3","tool":"search"}]}`, codeMissingArgument, "/update/0/action/arguments/q"},
		{"left without a dependency", `{"base_version":2,"remove":["s3"]}`, codeRefUnknownStep, "/steps/2/action/arguments/n"},
		{"invalid id", `{"base_version":2,"add":[{"id":"n *","tool":"now"}]}`, codeInvalidID, "/add/0/id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base, view := basePlan(t)
			next, findings := Apply(base, patchOf(t, c.patch), view, testEnvironment())
			if next != nil {
				t.Error("there is a next version")
			}
			if list := with(findings, c.code); len(list) != 1 || list[0].GetPointer() != c.pointer {
				t.Errorf("want %s at %s, got:\n%s", c.code, c.pointer, show(findings))
			}
		})
	}
	base, view := basePlan(t)
	if next, findings := Apply(base, nil, view, testEnvironment()); next != nil || !HasErrors(findings) {
		t.Errorf("no patch: %v\n%s", next, show(findings))
	}
}

func TestEmptyPatches(t *testing.T) {
	base, view := basePlan(t)
	for _, doc := range []string{`{"base_version":2}`, `{"base_version":2,"add":[{"id":"s1","tool":"echo","arguments":{"a":2,"b":1}}],"update":[{"id":"s4","tool":"echo","arguments":{"n":{"$ref":"steps.s3.result.stock"}},"depends_on":["s3"]}]}`} {
		next, findings := Apply(base, patchOf(t, doc), view, testEnvironment())
		if next.GetVersion() != 3 || len(with(findings, codeEmptyPatch)) != 1 || Digest(next) != Digest(base) {
			t.Errorf("%s:\n%s", doc, show(findings))
		}
	}
	all := &planv1.Plan{Version: 1, Goal: "g", Steps: graphOf([]string{"a"}).GetSteps()}
	next, findings := Apply(all, &planv1.Patch{BaseVersion: 1, Remove: []string{"a"}}, nil, testEnvironment())
	if next != nil {
		t.Error("a plan without steps was made")
	}
	wantOnly(t, findings, codeEmptyPlan, "/steps")
}

// A replanner that answers with the whole plan keeps what is done, by id and arguments, whatever else it words anew.
func TestCase70_FinishedWorkIsKept(t *testing.T) {
	base, view := basePlan(t)
	whole := func(s1 string) *planv1.Plan {
		p, findings := Parse([]byte(`{"goal":"g","assumptions":["in stock"],"steps":[` + s1 + `,
		 {"id":"s2","objective":"said anew","tool":"echo","arguments":{"x":{"$ref":"steps.s1.result.a"}}},
		 {"id":"s3","tool":"stock.check","arguments":{"sku":"p-128"},"depends_on":["s2"]}]}`))
		if HasErrors(findings) {
			t.Fatal(show(findings))
		}
		return p
	}
	next, findings := Apply(base, DiffFrom(base, whole(`{"id":"s1","tool":"echo","arguments":{"a":2,"b":1}}`), view), view, testEnvironment())
	if HasErrors(findings) {
		t.Fatal(show(findings))
	}
	for i, id := range []string{"s1", "s2"} {
		if next.GetSteps()[i] != base.GetSteps()[i] {
			t.Errorf("the finished step %s was replaced", id)
		}
	}
	if got := next.GetSteps()[2].GetAction().GetArguments().GetText(); got != `{"sku":"p-128"}` {
		t.Errorf("s3 has %s", got)
	}
	// Other arguments under a finished id.
	patch := DiffFrom(base, whole(`{"id":"s1","tool":"echo","arguments":{"a":2,"b":2}}`), view)
	next, findings = Apply(base, patch, view, testEnvironment())
	if len(with(findings, codeStepImmutable)) != 1 || next != nil {
		t.Errorf("changed arguments:\n%s", show(findings))
	}
	// No steps at all.
	_, findings = Read([]byte(`{"goal":"g","steps":[]}`), testEnvironment())
	wantOnly(t, findings, codeEmptyPlan, "/steps")
	// A patch for another version.
	_, findings = Apply(base, &planv1.Patch{BaseVersion: 1, Add: graphOf([]string{"n"}).GetSteps()}, view, testEnvironment())
	if f := wantOnly(t, findings, codeVersionConflict, "/base_version"); f.GetValues().GetText() != `{"base_version":1,"version":2}` {
		t.Errorf("values are %s", f.GetValues().GetText())
	}
	// Removal of a finished step.
	_, findings = Apply(base, &planv1.Patch{BaseVersion: 2, Remove: []string{"s1"}}, view, testEnvironment())
	if len(with(findings, codeStepImmutable)) != 1 {
		t.Errorf("removal:\n%s", show(findings))
	}
}

// A step that has started may use a tool that is gone since; one that has not may not.
func TestStartedStepsAreNotJudgedAgain(t *testing.T) {
	base, view := basePlan(t)
	env := testEnvironment()
	env.Tools["other"] = env.Tools["echo"]
	delete(env.Tools, "echo")
	if _, findings := Apply(base, patchOf(t, `{"base_version":2,"update":[{"id":"s4","tool":"other","depends_on":["s3"]}]}`), view, env); HasErrors(findings) {
		t.Errorf("findings:\n%s", show(findings))
	}
	_, findings := Apply(base, patchOf(t, `{"base_version":2,"goal":"h"}`), view, env)
	if f := wantOnly(t, findings, codeUnknownTool, "/steps/3/action/name"); f.GetStepId() != "s4" {
		t.Errorf("the finding is about %s", f.GetStepId())
	}
}

func TestDiff(t *testing.T) {
	base, view := basePlan(t)
	other, _ := Parse([]byte(`{"goal":"h","steps":[{"id":"n","tool":"now"},{"id":"s1","tool":"echo","arguments":{"a":2,"b":1}},{"id":"s4","tool":"now"}]}`))
	want := patchOf(t, `{"base_version":2,"goal":"h","set_assumptions":true,"add":[{"id":"n","tool":"now"}],"update":[{"id":"s4","tool":"now"}],"remove":["s2","s3","s5"]}`)
	if diff := cmp.Diff(want, Diff(base, other), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Remove = []string{"s3"}
	if diff := cmp.Diff(want, DiffFrom(base, other, view), protocmp.Transform()); diff != "" {
		t.Errorf("while executing (-want +got):\n%s", diff)
	}
	if d := Diff(base, base); PatchDigest(d) != PatchDigest(&planv1.Patch{}) {
		t.Errorf("a plan differs from itself: %v", d)
	}
}
