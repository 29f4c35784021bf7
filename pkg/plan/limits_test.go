package plan

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// limitCases holds each limit: what is just allowed, and what is one too much.
var limitCases = map[string]struct {
	limits   Limits
	at, over func(Limits) []*planv1.Finding
	code     string
}{
	"MaxPlanBytes":       {Limits{MaxPlanBytes: len(step(`"tool":"now"`))}, readStep(`"tool":"now"`), readStep(`"tool":"now" `), codePlanTooLarge},
	"MaxSteps":           {Limits{MaxSteps: 5}, validateWide(5), validateWide(6), codePlanTooLarge},
	"MaxDepth":           {Limits{MaxDepth: 8}, readStep(`"tool":"echo","arguments":{"x":[[[[]]]]}`), readStep(`"tool":"echo","arguments":{"x":[[[[[]]]]]}`), codeTooDeep},
	"MaxNumberExponent":  {Limits{MaxNumberExponent: 9}, readStep(`"tool":"echo","arguments":{"x":1e-9}`), readStep(`"tool":"echo","arguments":{"x":1e-10}`), codeNumberOutOfRange},
	"MaxNumberDigits":    {Limits{MaxNumberDigits: 4}, readStep(`"tool":"echo","arguments":{"x":12.34}`), readStep(`"tool":"echo","arguments":{"x":12.345}`), codeNumberOutOfRange},
	"MaxResolvedBytes":   {Limits{MaxResolvedBytes: 20}, resolveText(12), resolveText(13), "max_resolved_bytes"},
	"MaxReferences":      {Limits{MaxReferences: 2}, readStep(references(2)), readStep(references(3)), codeTooManyReferences},
	"MaxExpressionBytes": {Limits{MaxExpressionBytes: 8}, readStep(`"tool":"now","when":"true    "`), readStep(`"tool":"now","when":"true     "`), codeExpressionInvalid},
	"MaxExpressionCost":  {}, // TestMaxExpressionCost
	// The schema is visited once for the value, and once by the reference.
	"MaxSchemaSteps": {Limits{MaxSchemaSteps: 2}, checkSchema(`{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`), checkSchema(`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}}`), codeSchemaMismatch},
	"MaxAttempts":    {Limits{MaxAttempts: 7}, readStep(`"tool":"now","retry":7`), readStep(`"tool":"now","retry":8`), codeRetryOutOfRange},
	"MaxRetryDelay":  {Limits{MaxRetryDelay: time.Second}, readStep(`"tool":"now","retry":{"delay":"1s","max_delay":"1s"}`), readStep(`"tool":"now","retry":{"delay":"1.000000001s"}`), codeRetryOutOfRange},
	"MaxRetryFactor": {Limits{MaxRetryFactor: 2}, readStep(`"tool":"now","retry":{"factor":2}`), readStep(`"tool":"now","retry":{"factor":2.0001}`), codeRetryOutOfRange},
	"MaxTimeout":     {Limits{MaxTimeout: time.Minute}, readStep(`"tool":"now","timeout":"60s"`), readStep(`"tool":"now","timeout":"60.001s"`), codeTimeoutOutOfRange},
	"MaxWait":        {Limits{MaxWait: time.Minute}, readStep(waitFor("60s")), readStep(waitFor("61s")), codeInvalidControl},
	"MaxTextBytes":   {Limits{MaxTextBytes: 6}, readStep(`"tool":"now","title":"读读"`), readStep(`"tool":"now","title":"读读x"`), codeTextTooLong},
	"MaxFindings":    {Limits{MaxFindings: 2}, readStep(`"tool":"now","x":1,"y":2`), readStep(`"tool":"now","x":1,"y":2,"z":3`), codeMoreFindings},
}

func readStep(fields string) func(Limits) []*planv1.Finding {
	return func(l Limits) []*planv1.Finding {
		env := testEnvironment()
		env.Limits = l
		_, findings := Read([]byte(step(fields)), env)
		return findings
	}
}

func validateWide(n int) func(Limits) []*planv1.Finding {
	return func(l Limits) []*planv1.Finding {
		env := testEnvironment()
		env.Limits = l
		_, findings := Validate(wide(n), env)
		return findings
	}
}

// resolveText resolves {"x":"…"}, with n letters.
func resolveText(n int) func(Limits) []*planv1.Finding {
	return func(l Limits) []*planv1.Finding {
		_, err := l.Resolve(text(`{"x":{"$ref":"item"}}`), lookupIn(map[string]string{"item": `"` + strings.Repeat("a", n) + `"`}))
		if tooLarge, ok := err.(*TooLargeError); ok {
			return []*planv1.Finding{{Code: tooLarge.Limit}}
		}
		return nil
	}
}

func references(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"r%d":{"$ref":"run.input"}`, i)
	}
	return `"tool":"echo","arguments":{` + strings.Join(list, ",") + `}`
}

func checkSchema(schema string) func(Limits) []*planv1.Finding {
	return func(l Limits) []*planv1.Finding { return l.ValidateSchema(text(schema), text(`"x"`)) }
}

func waitFor(d string) string {
	return `"action":{"kind":"control","name":"wait","arguments":{"duration":"` + d + `"}}`
}

func TestLimits(t *testing.T) {
	fields := reflect.TypeFor[Limits]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		c, ok := limitCases[name]
		if !ok {
			t.Errorf("no test holds the limit %s", name)
			continue
		}
		if reflect.ValueOf(DefaultLimits()).Field(i).IsZero() {
			t.Errorf("%s has no default", name)
		}
		if c.at == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if got := with(c.at(c.limits), c.code); len(got) != 0 {
				t.Errorf("at the limit:\n%s", show(got))
			}
			if got := with(c.over(c.limits), c.code); len(got) != 1 {
				t.Errorf("beyond the limit: %s is missing in\n%s", c.code, show(c.over(c.limits)))
			}
		})
	}
}

// What an expression costs is the library's to say; at its cost it runs, below it does not.
func TestMaxExpressionCost(t *testing.T) {
	run := func(cost int) error {
		_, err := EvalCheck("result.all(x, x > 0)", Scope{Result: text(`[1,2,3]`), Limits: Limits{MaxExpressionCost: cost}})
		return err
	}
	cost := 1
	for ; cost < 1000 && run(cost) != nil; cost++ {
	}
	if cost == 1 || cost == 1000 {
		t.Fatalf("the cost is %d", cost)
	}
	if err := run(cost - 1); err == nil || !strings.Contains(err.Error(), "max_expression_cost") {
		t.Errorf("below its cost: %v", err)
	}
	if err := run(cost); err != nil {
		t.Errorf("at its cost: %v", err)
	}
}
