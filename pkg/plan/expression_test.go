package plan

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

func testScope() Scope {
	return Scope{
		Step: func(id string) (StepView, bool) {
			switch id {
			case "a":
				return StepView{Status: "succeeded", Result: text(`{"stock":3,"ok":true,"list":[1,2.5],"z":1,"b":2}`)}, true
			case "s-1":
				return StepView{Status: "skipped"}, true
			}
			return StepView{}, false
		},
		StepIDs:       func() []string { return []string{"s-1", "a"} },
		Input:         text(`{"budget":9007199254740993,"city":"上海","u":18446744073709551615,"big":123456789012345678901234567890}`),
		Artifact:      func(name string) (*planv1.JsonText, bool) { return text(`{"pages":2}`), name == "report" },
		ArtifactNames: func() []string { return []string{"report"} },
		Result:        text(`{"price":9011.00,"n":null,"tags":["x","y"],"by":{"b":1,"a":2,"c":3}}`),
		Item:          text(`{"sku":"p"}`), Index: 4, HasItem: true,
		Answer: text(`"done"`),
	}
}

func TestExpressions(t *testing.T) {
	for expr, want := range map[string]bool{
		`steps.a.result.stock > 0`:                                        true,
		`steps.a.result.stock > 3`:                                        false,
		`steps["s-1"].status == "skipped" && !has(steps["s-1"].result)`:   true,
		`has(steps.a.result.ok) && steps.a.result.ok`:                     true,
		`has(steps.a.result.nothing)`:                                     false,
		`"a" in steps && !("gone" in steps)`:                              true,
		`run.input.budget == 9007199254740993`:                            true,
		`run.input.budget > 9007199254740992`:                             true,
		`run.input.budget < 9007199254740992.5`:                           false,
		`run.input.u == 18446744073709551615u`:                            true,
		`run.input.big > 1e29`:                                            true,
		`run.input.city == "上海" && size(run.input.city) == 2`:             true,
		`result.price == 9011.0 && result.price < 9012`:                   true,
		`result.n == null`:                                                true,
		`result.tags.all(t, t != "z") && result.tags.exists(t, t == "y")`: true,
		`result.by.map(k, k) == ["a", "b", "c"]`:                          true,
		`steps.map(k, k) == ["a", "s-1"]`:                                 true,
		`steps.all(id, steps[id].status in ["succeeded", "skipped"])`:     true,
		`artifacts.report.pages == 2`:                                     true,
		`item.sku == "p" && index == 4`:                                   true,
		`answer == "done"`:                                                true,
		`result.by == {"a": 2, "b": 1, "c": 3}`:                           true,
		`result[?"gone"].orValue(7) == 7`:                                 true,
		`result.?price.hasValue()`:                                        true,
		`result.tags[1] == "y"`:                                           true,
		`timestamp("2030-01-31T08:00:00Z").getHours() == 8`:               true,
		`"2030-01-31".matches("^[0-9-]+$")`:                               true,
		`result.gone > 0 || true`:                                         true,
		`steps.a.result.list[1] == 2.5 && steps.a.result.list[0] == 1 && steps.a.result.list[0] == 1.0`: true,
		`type(result.price) == double && type(run.input.budget) == int`:                                 true,
		`dyn([1, "a"]).size() == 2`:                  true,
		`{"a": [1, 2].filter(x, x > 1)}.a == [2]`:    true,
		`[{"k": "v"}].exists(steps, steps.k == "v")`: true,
		`string(run.input.budget) == "9007199254740993" && double("1.5") == 1.5 && int("7") == 7 && true`: true,
	} {
		got, err := EvalCondition(expr, testScope())
		if err != nil || got != want {
			t.Errorf("%s is %v, %v", expr, got, err)
		}
	}
}

// Errors are in our own words, and the same each time.
func TestExpressionErrors(t *testing.T) {
	for expr, want := range map[string]struct{ code, message string }{
		`result.stok > 0`:               {CodeExpressionFailed, "the expression cannot be evaluated; not there: result.stok"},
		`steps.b.status == "succeeded"`: {CodeExpressionFailed, "the expression cannot be evaluated; not there: steps.b"},
		`steps["s-1"].result.x`:         {CodeExpressionFailed, "the expression cannot be evaluated; not there: steps.s-1.result"},
		`result.tags[7] == "x"`:         {CodeExpressionFailed, "the expression cannot be evaluated: types do not fit, or an index or number is out of range"},
		`result.price + 1 > 0`:          {CodeExpressionFailed, "the expression cannot be evaluated: types do not fit, or an index or number is out of range"},
		`1 / (index - 4) > 0`:           {CodeExpressionFailed, "the expression cannot be evaluated: types do not fit, or an index or number is out of range"},
		`result.tags`:                   {CodeExpressionFailed, "the expression does not give true or false"},
		`result.price`:                  {CodeExpressionFailed, "the expression does not give true or false"},
		`1 + 1`:                         {codeExpressionInvalid, "the expression does not give true or false"},
		`1 +`:                           {codeExpressionInvalid, "the expression is not valid CEL (line 1, column 4)"},
		"true &&\n  ) x":                {codeExpressionInvalid, "the expression is not valid CEL (line 2, column 3)"},
		``:                              {codeExpressionInvalid, "the expression is not valid CEL (line 1, column 1)"},
		`"a" > 1`:                       {codeExpressionInvalid, "the types in the expression do not fit, or a function does not exist (line 1, column 5)"},
		`nothing(1)`:                    {codeExpressionInvalid, "the types in the expression do not fit, or a function does not exist (line 1, column 8)"},
		`results.x > 1`:                 {codeExpressionUnknownName, `the expression has no variable "results"`},
		`timestamp("2030-01-31T08:00:00Z").getHours("Europe/Berlin") == 9`: {codeExpressionInvalid, "the types in the expression do not fit, or a function does not exist (line 1, column 43)"},
	} {
		for range 3 {
			_, err := EvalCheck(expr, testScope())
			var e *ExpressionError
			if !errors.As(err, &e) || e.Code != want.code || e.Message != want.message {
				t.Errorf("%s: %v\nwant %s", expr, err, want.message)
			}
		}
	}
	// What is not in the scope is not there.
	for _, name := range []string{"result", "item", "index", "answer", "run.input", "artifacts.report", "steps.a"} {
		_, err := EvalCheck(name+" == 1", Scope{})
		var e *ExpressionError
		if !errors.As(err, &e) || e.Code != CodeExpressionFailed {
			t.Errorf("%s in an empty scope: %v", name, err)
		}
	}
	if ok, err := EvalCheck("steps.size() == 0 && artifacts.size() == 0 && run.size() == 0", Scope{}); !ok || err != nil {
		t.Errorf("an empty scope: %v, %v", ok, err)
	}
	for _, broken := range []string{"", "{", "nope"} {
		if _, err := EvalCheck("result.x == 1", Scope{Result: text(broken)}); err == nil {
			t.Errorf("a result that is no JSON (%q) was evaluated", broken)
		}
	}
}

// Maps are walked in sorted order: the same expression gives the same answer each time.
func TestExpressionsAreDeterministic(t *testing.T) {
	var b strings.Builder
	for i := range 50 {
		fmt.Fprintf(&b, `,"k%02d":%d`, (i*37)%50, i)
	}
	scope := Scope{Result: text("{" + b.String()[1:] + "}")}
	first := `result.map(k, k)[0] == "k00" && result.map(k, k)[49] == "k49" && result.filter(k, result[k] > 10)[0] == "k01"`
	for range 20 {
		if ok, err := EvalCheck(first, scope); !ok || err != nil {
			t.Fatalf("%v, %v", ok, err)
		}
	}
}

func TestExpressionsAreBounded(t *testing.T) {
	list := "[" + strings.TrimSuffix(strings.Repeat("1,", 2000), ",") + "]"
	scope := Scope{Result: text(list)}
	_, err := EvalCheck("result.all(a, result.all(b, result.all(c, a + b + c > 0)))", scope)
	var e *ExpressionError
	if !errors.As(err, &e) || !strings.Contains(e.Message, "max_expression_cost") {
		t.Errorf("8e9 steps: %v", err)
	}
	for _, expr := range []string{strings.Repeat("(", 3000) + "true" + strings.Repeat(")", 3000), strings.Repeat("!", 5000) + "true", strings.Repeat("true && ", 800) + "true"} {
		if _, err := EvalCheck(expr, scope); err != nil && !errors.As(err, &e) {
			t.Errorf("%.20s…: %v", expr, err)
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, s := range []string{"result.a > 0", `steps["x"].status == "y"`, "[1].map(x, x)", "run.input.?a.orValue({})", "'\\x'", "{1:2}[?3]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		scope := testScope()
		scope.Limits.MaxExpressionCost = 10_000
		a, err := EvalCheck(expr, scope)
		b, again := EvalCheck(expr, scope)
		if a != b || fmt.Sprint(err) != fmt.Sprint(again) {
			t.Errorf("%q is %v, %v and then %v, %v", expr, a, err, b, again)
		}
	})
}
