package planner

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cairnrun/cairn/pkg/plan"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func book(t testing.TB, text string) *templateBook {
	t.Helper()
	b, err := parseTemplates([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func planFor(t testing.TB, b *templateBook, goal string) *proposal {
	t.Helper()
	p, err := templates{b}.plan(t.Context(), planRequest{PlanWork: &runv1.PlanWork{Spec: &runv1.RunSpec{Goal: goal}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// documented is the templates file of docs/planner.md and the goal that goes with it.
func documented(t testing.TB) (string, string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/planner.md")
	if err != nil {
		t.Fatal(err)
	}
	yaml := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	goal := regexp.MustCompile("Goal of the example: `([^`]+)`").FindSubmatch(text)
	if yaml == nil || goal == nil {
		t.Fatal("docs/planner.md has no example")
	}
	return string(yaml[1]), string(goal[1])
}

func definition(name, input string) *planv1.ToolDefinition {
	return &planv1.ToolDefinition{Name: name, InputSchema: &planv1.JsonText{Text: input}}
}

var shopTools = map[string]*planv1.ToolDefinition{
	"stock.check": definition("stock.check", `{"type":"object","properties":{"goods":{"type":"string"}},"required":["goods"]}`),
	"parcel.send": definition("parcel.send", `{"type":"object","required":["goods","count","city"]}`),
}

func TestDocumentedExampleMakesSoundPlansAndPatches(t *testing.T) {
	text, goal := documented(t)
	b := book(t, text)
	for _, tc := range []struct{ goal, want string }{
		{goal, `{"goods":"books","count":2,"city":"Beijing","speed":"fast"}`},
		{"寄3件茶到北京", `{"goods":"tea","count":3,"city":"北京","speed":"fast"}`},
		{"ship 9007199254740993 pens", `{"goods":"pens","count":9007199254740993,"city":"Shanghai","speed":"fast"}`},
	} {
		p := planFor(t, b, tc.goal)
		if p == nil {
			t.Fatalf("no template for %s", tc.goal)
		}
		pl, found := plan.Read(p.doc, plan.Environment{Tools: shopTools})
		if plan.HasErrors(found) {
			t.Fatalf("%s: %v", tc.goal, found)
		}
		if got := pl.GetSteps()[1].GetAction().GetArguments().GetText(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.goal, got, tc.want)
		}
		if p.trace.GetSource() != "template" || p.trace.GetName() != "ship_parcel" {
			t.Errorf("trace %v", p.trace)
		}
	}

	base := basePlan(t, b, goal)
	for name, tc := range map[string]struct {
		work       *runv1.ReplanWork
		rule       string
		ship       string
		answer     string
		wantReason string
	}{
		"slower": {
			work: &runv1.ReplanWork{StepId: "ship", Error: &runv1.Error{Code: "no_courier"},
				Spec:  &runv1.RunSpec{Goal: goal, Input: text2json(`{"country":"CN"}`)},
				Steps: []*runv1.StepState{done("stock", `{"left":9011.00}`), {StepId: "ship", Status: runv1.StepStatus_STEP_STATUS_REPLANNING}}},
			rule: "slower", ship: `{"goods":"books","count":2,"city":"Beijing","speed":"slow","parcel_of":9011.00}`, wantReason: "no fast courier to CN",
		},
		"another kind": {
			work: &runv1.ReplanWork{StepId: "stock", Error: &runv1.Error{Code: "check_failed"}, FalsifiedAssumptions: []string{"in_stock"},
				Spec:  &runv1.RunSpec{Goal: goal, Input: text2json(`{"accept_tea":true}`)},
				Steps: []*runv1.StepState{{StepId: "stock", Status: runv1.StepStatus_STEP_STATUS_REPLANNING}}},
			rule: "sell_tea_instead", ship: `{"goods":"tea","count":2,"city":"Beijing","speed":"fast"}`, wantReason: "books sold out, tea is accepted",
		},
		"nothing fits": {
			work: &runv1.ReplanWork{StepId: "stock", Error: &runv1.Error{Code: "check_failed"}, FalsifiedAssumptions: []string{"in_stock"},
				Spec: &runv1.RunSpec{Goal: goal}},
			rule: "sold_out", answer: `{"status":"sold_out","failed_at":"stock"}`, wantReason: "sold out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.work.Plan = base
			r := replanRequest{ReplanWork: tc.work, tools: shopTools}
			p, err := templates{b}.replan(t.Context(), r)
			if err != nil || p == nil {
				t.Fatalf("%v, %v", p, err)
			}
			if p.trace.GetName() != tc.rule || p.trace.GetSource() != "rules" || p.reason != tc.wantReason {
				t.Errorf("rule %s for %q", p.trace.GetName(), p.reason)
			}
			if tc.answer != "" {
				if !p.decline || p.answer.GetText() != tc.answer {
					t.Errorf("answer %s", p.answer.GetText())
				}
				return
			}
			env := plan.Environment{Tools: shopTools}
			patch, found := readPatch(p.doc, r, env)
			if plan.HasErrors(found) || patch.GetReason() != tc.wantReason {
				t.Fatalf("%s: %v", p.doc, found)
			}
			next, found := plan.Apply(base, patch, progress(tc.work.GetSteps()), env)
			if plan.HasErrors(found) {
				t.Fatalf("%s: %v", p.doc, found)
			}
			if got := next.GetSteps()[1].GetAction().GetArguments().GetText(); got != tc.ship {
				t.Errorf("ship %s\nwant %s", got, tc.ship)
			}
			if next.GetSteps()[1].GetOnFailure() != planv1.FailurePolicy_FAILURE_POLICY_REPLAN_STEP {
				t.Error("what the change does not name was lost")
			}
		})
	}
}

func basePlan(t testing.TB, b *templateBook, goal string) *planv1.Plan {
	t.Helper()
	pl, found := plan.Read(planFor(t, b, goal).doc, plan.Environment{Tools: shopTools})
	if plan.HasErrors(found) {
		t.Fatal(found)
	}
	pl.Version = 1
	return pl
}

func text2json(s string) *planv1.JsonText { return &planv1.JsonText{Text: s} }

func done(id, result string) *runv1.StepState {
	return &runv1.StepState{StepId: id, Status: runv1.StepStatus_STEP_STATUS_SUCCEEDED,
		Result: &runv1.Value{Value: &runv1.Value_Inline{Inline: text2json(result)}}}
}

func TestSlots(t *testing.T) {
	const frame = `
templates:
  - name: t
    goal: '^n=(?<n>\S*)(?: s=(?<s>.*))?$'
    slots: {n: {type: TYPE, values: {half: 0.50}}}
    plan: {steps: [{id: a, n: {$slot: n}, list: [1, {$slot: s}, 2], s: {$slot: s}, t: {$text: "<{s}> {{n}} {n}"}, lit: "$1 ${n} {n}"}]}
`
	for _, tc := range []struct{ kind, goal, want string }{
		{"integer", "n=9007199254740993", `"n":9007199254740993,"list":[1,2],"t":"<> {n} 9007199254740993"`},
		{"number", "n=9011.00 s=x", `"n":9011.00,"list":[1,"x",2],"s":"x","t":"<x> {n} 9011.00"`},
		{"number", "n=half", `"n":0.50,"list":[1,2],"t":"<> {n} 0.50"`},
		{"boolean", "n=true", `"n":true,"list":[1,2],"t":"<> {n} true"`},
		{"json", `n=[1,{"a":null}]`, `"n":[1,{"a":null}],"list":[1,2],"t":"<> {n} [1,{\"a\":null}]"`},
		{"string", `n=7 s={"$ref":"steps.a.result"}`, `"n":"7","list":[1,"{\"$ref\":\"steps.a.result\"}",2],"s":"{\"$ref\":\"steps.a.result\"}","t":"<{\"$ref\":\"steps.a.result\"}> {n} 7"`},
		{"string", "n=x s=$1 \"quoted\" \\ 读✅", `"n":"x","list":[1,"$1 \"quoted\" \\ 读✅",2],"s":"$1 \"quoted\" \\ 读✅","t":"<$1 \"quoted\" \\ 读✅> {n} x"`},
		{"integer", "n=1.5", ""},
		{"integer", "n=1e3", ""},
		{"number", "n=x", ""},
		{"boolean", "n=0", ""},
		{"json", "n={", ""},
		{"string", "something else", ""},
	} {
		p := planFor(t, book(t, strings.Replace(frame, "TYPE", tc.kind, 1)), tc.goal)
		if tc.want == "" {
			if p != nil {
				t.Errorf("%s %q fits: %s", tc.kind, tc.goal, p.doc)
			}
			continue
		}
		want := `{"steps":[{"id":"a",` + tc.want + `,"lit":"$1 ${n} {n}"}]}`
		if p == nil || string(p.doc) != want {
			t.Errorf("%s %q:\n got %s\nwant %s", tc.kind, tc.goal, p.doc, want)
		}
	}
}

func TestFirstTemplateThatFitsIsUsed(t *testing.T) {
	b := book(t, `
templates:
  - {name: number, goal: 'do (?<n>\S+)', slots: {n: {type: integer}}, plan: {steps: []}}
  - {name: any, goal: 'do', plan: {steps: []}}
`)
	for goal, want := range map[string]string{"please do 7 now": "number", "do it": "any"} {
		if p := planFor(t, b, goal); p.trace.GetName() != want {
			t.Errorf("%s: %s, want %s", goal, p.trace.GetName(), want)
		}
	}
	if p := planFor(t, b, "undone"); p == nil || p.trace.GetName() != "any" {
		t.Error("patterns fit anywhere in a goal")
	}
	if p := planFor(t, b, "nothing"); p != nil {
		t.Error("a template fits everything")
	}
}

func TestRulesFitByWhatTheyName(t *testing.T) {
	failure := &runv1.ReplanWork{
		StepId: "check_stock[2]", Error: &runv1.Error{Code: "check_failed", Message: "sold out", Details: text2json(`{"result":{"left":0}}`)},
		FalsifiedAssumptions: []string{"a1", "in_stock"}, Spec: &runv1.RunSpec{Goal: "buy 3 pens", Input: text2json(`{"max":3}`)},
		Plan:  &planv1.Plan{Version: 4, Steps: []*planv1.Step{{Id: "check_stock", Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "stock.check"}}}},
		Steps: []*runv1.StepState{done("first", `{"ok":true}`), {StepId: "check_stock[2]", Status: runv1.StepStatus_STEP_STATUS_FAILED}},
	}
	for when, want := range map[string]bool{
		`{}`:                                  true,
		`{step: "check_stock[2]"}`:            true,
		`{step: "check_*"}`:                   true,
		`{step: [pay, "*[2]"]}`:               true,
		`{step: pay}`:                         false,
		`{tool: stock.check}`:                 true,
		`{tool: "stock.*", code: "*_failed"}`: true,
		`{tool: "stock.*", code: timeout}`:    false,
		`{assumption: in_stock}`:              true,
		`{assumption: [x, "a?"]}`:             false,
		`{goal: 'buy (?<n>\d+)'}`:             true,
		`{goal: 'sell (?<n>\d+)'}`:            false,
		`{facts: steps.first.result.ok}`:      true,
		`{facts: ['steps.first.status == "succeeded"', run.input.max > 3]}`: false,
		`{facts: steps.nowhere.result.ok}`:                                  false,
		`{facts: 'steps["check_stock[2]"].result.left == 0'}`:               true,
	} {
		b := book(t, "rules:\n  - {name: r, when: "+when+", answer: 1}")
		p, err := templates{b}.replan(t.Context(), replanRequest{ReplanWork: failure})
		if err != nil {
			t.Fatal(err)
		}
		if (p != nil) != want {
			t.Errorf("%s: fits %v, want %v", when, p != nil, want)
		}
	}
}

func TestRuleWithAMissingFactLeavesItToTheNext(t *testing.T) {
	b := book(t, `
rules:
  - {name: needs_fact, answer: {x: {$fact: steps.a.result.missing}}}
  - {name: needs_text, answer: {$text: "{run.input.missing}"}}
  - {name: default, answer: {x: {$fact: steps.a.result.missing, default: null}, y: {$fact: 'steps.a.result.list.1'}, all: {$fact: steps.a.result}, code: {$fact: error.code}, d: {$fact: error.details.k}}}
`)
	p, err := templates{b}.replan(t.Context(), replanRequest{ReplanWork: &runv1.ReplanWork{
		Spec: &runv1.RunSpec{}, Error: &runv1.Error{Code: "timeout", Details: text2json(`{"k":1.50}`)}, Steps: []*runv1.StepState{done("a", `{"list":[1,2e1]}`)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"x":null,"y":2e1,"all":{"list":[1,2e1]},"code":"timeout","d":1.50}`; p == nil || p.answer.GetText() != want {
		t.Errorf("got %s, want %s", p.answer.GetText(), want)
	}
}

func TestChangeMergesIntoTheStep(t *testing.T) {
	base, found := plan.Parse([]byte(`{"goal":"g","steps":[{"id":"a","action":{"kind":"tool","name":"t","arguments":{"n":9007199254740993,"keep":{"$ref":"steps.b.result"},"o":{"x":1,"y":2},"gone":1}},"retry":{"max_attempts":2}}]}`))
	if plan.HasErrors(found) {
		t.Fatal(found)
	}
	base.Version = 7
	doc, err := patchDocument([]byte(`{"change":[{"id":"a","action":{"arguments":{"o":{"y":3},"gone":null,"new":{"$ref":"steps.c.result"},"keep":{"deep":1}}},"retry":null},{"id":"nowhere","optional":true}],"remove":["z"]}`), base, "why")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"base_version":7,"reason":"why","remove":["z"],"update":[` +
		`{"id":"a","action":{"kind":"tool","name":"t","arguments":{"n":9007199254740993,"keep":{"deep":1},"o":{"x":1,"y":3},"new":{"$ref":"steps.c.result"}}}},` +
		`{"id":"nowhere","optional":true}]}`
	if diff := cmp.Diff(want, string(doc)); diff != "" {
		t.Error(diff)
	}
}

func TestTemplatesFileIsChecked(t *testing.T) {
	tmpl := func(s string) string { return "templates:\n  - name: t\n    goal: 'x (?<n>a)'\n    " + s }
	ru := func(s string) string { return "rules:\n  - name: r\n    " + s }
	for text, want := range map[string]string{
		"templates: 7": "templates",
		"plans: []":    `unknown field "plans"`,
		"templates: [{goal: x, plan: {steps: []}}]":                                                 "line 1: template 1: name is missing",
		tmpl("plan: {goal: g}"):                                                                     "line 2: template t: plan: it has no steps",
		tmpl("colour: red"):                                                                         `unknown field "colour"`,
		tmpl("plan: {steps: [{id: {$slot: m}}]}"):                                                   `there is no slot "m"`,
		tmpl("plan: {steps: [{id: {$slot: n, x: 1}}]}"):                                             "x stands beside $slot",
		tmpl("plan: {steps: [{id: {$text: 7}}]}"):                                                   "$text: want a text",
		tmpl("plan: {steps: [{id: {$fact: run.input.x}}]}"):                                         "a template knows no facts",
		tmpl("slots: {n: {type: date}}\n    plan: {steps: []}"):                                     `type "date"`,
		tmpl("slots: {m: {type: number}}\n    plan: {steps: []}"):                                   "no pattern has a group (?<m>…)",
		"templates: [{name: t, goal: '(', plan: {steps: []}}]":                                      "goal pattern 1",
		"templates: [{name: t, goal: a, plan: {steps: []}}, {name: t, goal: a, plan: {steps: []}}]": "used twice",
		ru("when: {step: a}"):                                                                       "give either patch or answer",
		ru("answer: 1\n    patch: {}"):                                                              "give either patch or answer",
		ru("patch: {changes: []}"):                                                                  `unknown field "changes"`,
		ru("patch: {change: [{action: {}}]}"):                                                       "change 1: id is missing",
		ru("when: {template: nowhere}\n    answer: 1"):                                              `no template "nowhere"`,
		ru("when: {facts: 'steps.a.result +'}\n    answer: 1"):                                      "facts",
		ru("when: {facts: 'nowhere.x'}\n    answer: 1"):                                             "facts",
		ru("answer: {$fact: steps.a.output}"):                                                       "steps.a.output",
		ru("answer: {$fact: artifacts.a}"):                                                          "facts are",
		ru("answer: {$fact: error.stack}"):                                                          "of the error there are",
		ru("answer: {$slot: n}"):                                                                    `no slot "n"`,
		"templates: [":                                                                              "line 1",
	} {
		_, err := parseTemplates([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v, want %q", text, err, want)
		}
	}
	if _, err := loadTemplates("nowhere.yaml"); err == nil || !strings.Contains(err.Error(), "nowhere.yaml") || !strings.Contains(err.Error(), "--templates") {
		t.Errorf("missing file: %v", err)
	}
}
