package plan

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// codesOfSource are the codes that the source declares.
func codesOfSource(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "code") {
			return true
		}
		code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, code)
		return true
	})
	if len(codes) < 40 {
		t.Fatalf("only %d codes were found in the source", len(codes))
	}
	return codes
}

// step makes a plan of one step with these fields.
func step(fields string) string {
	return `{"goal":"g","steps":[{"id":"a",` + fields + `}]}`
}

// two makes a plan of a first step and another with these fields.
func two(fields string) string {
	return `{"goal":"g","steps":[{"id":"a","tool":"stock.check","arguments":{"sku":"x"}},{"id":"b",` + fields + `}]}`
}

// findingCases shows each code once or more: what leads to it, and where it points.
var findingCases = []struct {
	code, pointer, doc string
	severity           planv1.Severity
	limits             Limits
	allowed            []string
	input              string
}{
	{code: codeInvalidJSON, doc: `{"goal":`, pointer: "/goal"},
	{code: codeInvalidJSON, doc: `{"goal":"g"} and more`},
	{code: codeInvalidJSON, doc: ``},
	{code: codeInvalidJSON, doc: "{\"goal\":\"\xff\"}", pointer: "/goal"},
	{code: codeDuplicateKey, doc: `{"goal":"g","goal":"h","steps":[{"id":"a","tool":"now"}]}`, pointer: "/goal"},
	{code: codeNumberOutOfRange, doc: step(`"tool":"echo","arguments":{"n":1e999999999}`), pointer: "/steps/0/arguments/n"},
	{code: codeTooDeep, doc: step(`"tool":"echo","arguments":{"n":[[[[]]]]}`), pointer: "/steps/0/arguments/n/0/0/0", limits: Limits{MaxDepth: 7}},
	{code: codeUnknownField, doc: step(`"tool":"echo","args":{}`), pointer: "/steps/0/args"},
	{code: codeUnknownField, doc: `{"goal":"g","step":[],"steps":[{"id":"a","tool":"now"}]}`, pointer: "/step"},
	{code: codeUnknownField, doc: step(`"action":{"kind":"tool","name":"now","argument":{}}`), pointer: "/steps/0/action/argument"},
	{code: codeUnknownField, doc: step(`"tool":"now","retry":{"attempts":2}`), pointer: "/steps/0/retry/attempts"},
	{code: codeUnknownField, doc: step(`"tool":"now","expect":{"check":[]}`), pointer: "/steps/0/expect/check"},
	{code: codeWrongType, doc: `[]`},
	{code: codeWrongType, doc: `{"goal":["g"],"steps":[{"id":"a","tool":"now"}]}`, pointer: "/goal"},
	{code: codeWrongType, doc: `{"goal":"g","steps":{"a":{}}}`, pointer: "/steps"},
	{code: codeWrongType, doc: step(`"tool":"now","optional":"yes"`), pointer: "/steps/0/optional"},
	{code: codeWrongType, doc: step(`"tool":"now","retry":"3"`), pointer: "/steps/0/retry"},
	{code: codeWrongType, doc: step(`"tool":"now","retry":1.5`), pointer: "/steps/0/retry"},
	{code: codeWrongType, doc: step(`"tool":"now","timeout":5`), pointer: "/steps/0/timeout"},
	{code: codeInvalidValue, doc: step(`"tool":"now","on_failure":"replan"`), pointer: "/steps/0/on_failure"},
	{code: codeInvalidValue, doc: step(`"action":{"kind":"tol","name":"now"}`), pointer: "/steps/0/action/kind"},
	{code: codeMissingField, doc: step(`"action":{"kind":"tool"}`), pointer: "/steps/0/action/name"},
	{code: codeMissingField, doc: step(`"tool":"now","expect":{"checks":[{"message":"m"}]}`), pointer: "/steps/0/expect/checks/0/expression"},
	{code: codeConflictingFields, doc: step(`"tool":"now","action":{"kind":"tool","name":"now"}`), pointer: "/steps/0/tool"},
	{code: codeConflictingFields, doc: step(`"action":{"kind":"tool","name":"now"},"arguments":{}`), pointer: "/steps/0/arguments"},
	{code: codeArgsStringDecoded, severity: planv1.Severity_SEVERITY_NOTE, doc: step(`"tool":"search","arguments":"{\"q\":\"a\"}"`), pointer: "/steps/0/arguments"},
	{code: codeArgsNotObject, doc: step(`"action":{"kind":"tool","name":"echo","arguments":[1]}`), pointer: "/steps/0/action/arguments"},
	{code: codePlanTooLarge, doc: `{"goal":"g","steps":[{"id":"a","tool":"now"},{"id":"b","tool":"now"}]}`, pointer: "/steps", limits: Limits{MaxSteps: 1}},
	{code: codePlanTooLarge, doc: step(`"tool":"now"`), limits: Limits{MaxPlanBytes: 10}},
	{code: codeTextTooLong, doc: step(`"tool":"now","objective":"12345678901"`), pointer: "/steps/0/objective", limits: Limits{MaxTextBytes: 10}},
	{code: codeInvalidID, doc: `{"goal":"g","steps":[{"id":"x *","tool":"now"}]}`, pointer: "/steps/0/id"},
	{code: codeInvalidID, doc: `{"goal":"g","steps":[{"tool":"now"}]}`, pointer: "/steps/0/id"},
	{code: codeInvalidID, doc: step(`"tool":"now","produces":["a.b"]`), pointer: "/steps/0/produces/0"},
	{code: codeInvalidDuration, doc: step(`"tool":"now","timeout":"5 minutes"`), pointer: "/steps/0/timeout"},
	{code: codeMoreFindings, doc: `{"a":1,"b":2,"goal":"g","steps":[{"id":"a","tool":"now"}]}`, limits: Limits{MaxFindings: 1}},

	{code: codeUnknownTool, doc: step(`"tool":"serch"`), pointer: "/steps/0/action/name"},
	{code: codeUnknownTool, doc: step(`"action":{"kind":"llm","name":"generat"}`), pointer: "/steps/0/action/name"},
	{code: codeToolNotAllowed, doc: step(`"tool":"now"`), pointer: "/steps/0/action/name", allowed: []string{"echo"}},
	{code: codeNotPermitted, doc: step(`"tool":"pay","confirm":true,"arguments":{"amount":1}`), pointer: "/steps/0/action/name"},
	{code: codeUnknownControl, doc: step(`"action":{"kind":"control","name":"sleep"}`), pointer: "/steps/0/action/name"},
	{code: codeModeUnavailable, doc: step(`"objective":"find out"`), pointer: "/steps/0"},
	{code: codeModeUnavailable, doc: step(`"action":{"kind":"run","name":"child"}`), pointer: "/steps/0/action/kind"},

	{code: codeSchemaMismatch, doc: step(`"tool":"search","arguments":{"q":1}`), pointer: "/steps/0/action/arguments/q"},
	{code: codeSchemaInvalid, doc: step(`"tool":"now","expect":{"schema":{"type":"nothing"}}`), pointer: "/steps/0/expect/schema"},
	{code: codeSchemaInvalid, doc: step(`"tool":"broken"`), pointer: "/steps/0/action/arguments"},
	{code: codeMissingArgument, doc: step(`"tool":"search"`), pointer: "/steps/0/action/arguments/q"},
	{code: codeUnknownArgument, doc: step(`"tool":"search","arguments":{"q":"x","m":1}`), pointer: "/steps/0/action/arguments/m"},
	{code: codeNullDropped, severity: planv1.Severity_SEVERITY_NOTE, doc: step(`"tool":"search","arguments":{"q":"x","a":null}`), pointer: "/steps/0/action/arguments/a"},
	{code: codeRefSyntax, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"steps.a.output.y"}}`), pointer: "/steps/1/action/arguments/x"},
	{code: codeRefSyntax, doc: two(`"tool":"echo","arguments":{"x":{"$ref":7}}`), pointer: "/steps/1/action/arguments/x"},
	{code: codeRefWithSiblings, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"steps.a.result","y":1}}`), pointer: "/steps/1/action/arguments/x"},
	{code: codeRefInDefault, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"steps.a.result","default":{"$ref":"run.input"}}}`), pointer: "/steps/1/action/arguments/x/default"},
	{code: codeRefUnknownRoot, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"step.a.result"}}`), pointer: "/steps/1/action/arguments/x"},
	{code: codeRefUnknownStep, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"steps.aa.result"}}`), pointer: "/steps/1/action/arguments/x"},
	{code: codeRefUnknownStep, doc: two(`"tool":"now","when":"steps.c.status == 'succeeded'"`), pointer: "/steps/1/when"},
	{code: codeRefUnknownArtifact, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"artifacts.report"}}`), pointer: "/steps/1/action/arguments/x"},
	{code: codeRefUnknownPath, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"steps.a.result.stok"}}`), pointer: "/steps/1/action/arguments/x"},
	{code: codeRefTypeMismatch, doc: two(`"tool":"search","arguments":{"q":{"$ref":"steps.a.result.stock"}}`), pointer: "/steps/1/action/arguments/q"},
	{code: codeRefTypeMismatch, doc: two(`"tool":"now","for_each":"steps.a.result.stock"`), pointer: "/steps/1/for_each"},
	{code: codeRefToItself, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"steps.b.result"}}`), pointer: "/steps/1/action/arguments/x"},
	{code: codeRefOutsideForEach, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"item.y"}}`), pointer: "/steps/1/action/arguments/x"},
	{code: codeRefUnknownInput, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"run.input.citi"}}`), pointer: "/steps/1/action/arguments/x", input: `{"city":"c"}`},
	{code: codeTooManyReferences, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"steps.a.result"},"y":{"$ref":"steps.a.result"}}`), pointer: "/steps/1/action/arguments/y", limits: Limits{MaxReferences: 1}},
	{code: codeForEachNotList, doc: step(`"tool":"now","for_each":{"a":1}`), pointer: "/steps/0/for_each"},
	{code: codeInvalidControl, doc: step(`"action":{"kind":"control","name":"wait","arguments":{"duration":"soon"}}`), pointer: "/steps/0/action/arguments/duration"},
	{code: codeInvalidControl, doc: step(`"action":{"kind":"control","name":"user.ask"}`), pointer: "/steps/0/action/arguments"},
	{code: codeDependencyAdded, severity: planv1.Severity_SEVERITY_NOTE, doc: two(`"tool":"echo","arguments":{"x":{"$ref":"steps.a.result"}}`), pointer: "/steps/1/depends_on"},

	{code: codeEmptyPlan, doc: `{"goal":"g","steps":[]}`, pointer: "/steps"},
	{code: codeEmptyGoal, severity: planv1.Severity_SEVERITY_WARNING, doc: `{"steps":[{"id":"a","tool":"now"}]}`, pointer: "/goal"},
	{code: codeEmptyGoal, doc: `{"goal":" ","steps":[{"id":"a","tool":"now","on_failure":"replan_step"}]}`, pointer: "/goal"},
	{code: codeEmptyObjective, doc: step(`"tool":"now","objective":"  "`), pointer: "/steps/0/objective"},
	{code: codeDuplicateID, doc: `{"goal":"g","steps":[{"id":"a","tool":"now"},{"id":"a","tool":"now"}]}`, pointer: "/steps/1/id"},
	{code: codeDuplicateID, doc: `{"goal":"g","assumptions":[{"id":"x","text":"1"},{"id":"x","text":"2"}],"steps":[{"id":"a","tool":"now"}]}`, pointer: "/assumptions/1/id"},
	{code: codeDanglingDependency, doc: two(`"tool":"now","depends_on":["aa"]`), pointer: "/steps/1/depends_on/0"},
	{code: codeDuplicateDependency, severity: planv1.Severity_SEVERITY_NOTE, doc: two(`"tool":"now","depends_on":["a","a"]`), pointer: "/steps/1/depends_on/1"},
	{code: codeCycle, doc: step(`"tool":"now","depends_on":["a"]`), pointer: "/steps/0/depends_on"},
	{code: codeJoinWithoutInputs, doc: step(`"action":{"kind":"control","name":"join"}`), pointer: "/steps/0/depends_on"},
	{code: codeRiskWithoutConfirm, doc: step(`"tool":"now","risk":"high"`), pointer: "/steps/0/confirm"},
	{code: codeSkipPolicyNeedsOption, doc: step(`"tool":"now","on_failure":"skip"`), pointer: "/steps/0/on_failure"},
	{code: codeRetryOutOfRange, doc: step(`"tool":"now","retry":101`), pointer: "/steps/0/retry/max_attempts"},
	{code: codeRetryOutOfRange, doc: step(`"tool":"now","retry":-1`), pointer: "/steps/0/retry/max_attempts"},
	{code: codeRetryOutOfRange, doc: step(`"tool":"now","retry":{"max_attempts":2,"factor":0.5}`), pointer: "/steps/0/retry/factor"},
	{code: codeTimeoutOutOfRange, doc: step(`"tool":"now","timeout":"0s"`), pointer: "/steps/0/action/timeout"},
	{code: codeExpressionInvalid, doc: step(`"tool":"now","when":"run.input.x >"`), pointer: "/steps/0/when"},
	{code: codeExpressionInvalid, doc: step(`"tool":"now","when":"1 + 1"`), pointer: "/steps/0/when"},
	{code: codeExpressionInvalid, doc: step(`"tool":"now","when":"'a' > 1"`), pointer: "/steps/0/when"},
	{code: codeExpressionUnknownName, doc: step(`"tool":"now","expect":{"checks":["results.x > 1"]}`), pointer: "/steps/0/expect/checks/0/expression"},
	{code: codeExpressionUnknownName, doc: step(`"tool":"now","when":"result.x > 1"`), pointer: "/steps/0/when"},
	{code: codeUnknownAssumption, doc: step(`"tool":"now","expect":{"checks":[{"expression":"result.x > 1","assumption":"a9"}]}`), pointer: "/steps/0/expect/checks/0/assumption"},
	{code: codeDuplicateArtifact, doc: two(`"tool":"now","produces":["x","x"]`), pointer: "/steps/1/produces/1"},
	{code: codeInvalidResult, doc: step(`"tool":"now","result":"a..b"`), pointer: "/steps/0/result"},
	{code: codeControlUnsupported, doc: step(`"action":{"kind":"control","name":"wait","arguments":{"duration":"1s"},"timeout":"5s"}`), pointer: "/steps/0/action/timeout"},
}

// patchCodes are shown by the tests of patches.
var patchCodes = []string{codeVersionConflict, codeStepImmutable, codeStepUnderWay, codeUnknownStep, codeEmptyPatch}

func TestFindings(t *testing.T) {
	for _, c := range findingCases {
		t.Run(c.code+c.pointer, func(t *testing.T) {
			env := testEnvironment()
			env.Limits, env.AllowedTools = c.limits, c.allowed
			if c.code == codeNotPermitted {
				env.Permissions = nil
			}
			if c.input != "" {
				env.Input = text(c.input)
			}
			_, findings := Read([]byte(c.doc), env)
			if c.severity == planv1.Severity_SEVERITY_UNSPECIFIED {
				c.severity = planv1.Severity_SEVERITY_ERROR
			}
			i := slices.IndexFunc(findings, func(f *planv1.Finding) bool { return f.GetCode() == c.code && f.GetPointer() == c.pointer })
			if i < 0 {
				t.Fatalf("%s at %q is missing in:\n%s", c.code, c.pointer, show(findings))
			}
			f := findings[i]
			if f.GetSeverity() != c.severity {
				t.Errorf("severity is %v", f.GetSeverity())
			}
			if f.GetMessage() == "" || f.GetLayer() == "" {
				t.Errorf("message or layer is missing: %v", f)
			}
			if f.GetSeverity() == planv1.Severity_SEVERITY_NOTE != !HasErrors(findings) && c.severity != planv1.Severity_SEVERITY_WARNING {
				t.Errorf("notes and errors are mixed up:\n%s", show(findings))
			}
			// One fault is one finding, except where one fault makes two rules fail.
			several := []string{codeModeUnavailable, codeMoreFindings, codeEmptyPlan, codeConflictingFields}
			if n := len(errorsOf(findings)); n > 1 && !slices.Contains(several, c.code) {
				t.Errorf("one fault, %d errors:\n%s", n, show(findings))
			}
		})
	}
}

func TestEveryCodeIsShown(t *testing.T) {
	for _, code := range codesOfSource(t) {
		shown := slices.Contains(patchCodes, code)
		for _, c := range findingCases {
			shown = shown || c.code == code
		}
		if !shown {
			t.Errorf("no test shows the code %s", code)
		}
	}
}
