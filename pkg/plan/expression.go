package plan

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	celenv "github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// expression is a compiled condition or check. It never changes after it was made.
type expression struct {
	program cel.Program
	err     *ExpressionError
	// Variables, steps and artifacts that the text names.
	variables []string
	steps     []string
	artifacts []string
}

// ExpressionError is a condition or check that cannot be compiled or evaluated. Its texts are this package's own, so
// that they stay the same when a library changes.
type ExpressionError struct {
	// Code is expression_invalid, expression_unknown_name or expression_failed.
	Code string
	// Line and Column point into the expression, from 1; 0 where there is no place to point to.
	Line, Column int
	Message      string
	// Missing names what the evaluation looked for and did not find: "result.stock".
	Missing []string
	unknown string
}

func (e *ExpressionError) Error() string { return e.Message }

// CodeExpressionFailed marks expressions that compile and cannot be evaluated for the values given.
const CodeExpressionFailed = "expression_failed"

// Variables of expressions, by where they stand.
var (
	// A condition is asked once a step, before a list becomes items.
	conditionVariables  = []string{"steps", "run", "artifacts"}
	checkVariables      = []string{"steps", "run", "artifacts", "item", "index", "result"}
	acceptanceVariables = []string{"steps", "run", "artifacts", "answer"}
)

// expressionCacheSize holds the expressions of many plans: a plan seldom has more than a few.
const expressionCacheSize = 4096

type expressionKey struct {
	text     string
	maxBytes int
	maxCost  int
}

var expressions = newMemo[expressionKey, *expression](expressionCacheSize)

func compileExpression(text string, limits Limits) *expression {
	key := expressionKey{text, limits.MaxExpressionBytes, limits.MaxExpressionCost}
	return expressions.get(key, func() *expression { return newExpression(text, limits) })
}

// celEnvironment is what expressions can say. Functions that read a time zone's rules from the machine are left out:
// the same expression must give the same answer everywhere.
var celEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	values := cel.MapType(cel.StringType, cel.DynType)
	return cel.NewCustomEnv(
		cel.StdLib(cel.StdLibSubset(&celenv.LibrarySubset{ExcludeFunctions: zonedFunctions()})),
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.Variable("steps", values),
		cel.Variable("run", values),
		cel.Variable("artifacts", values),
		cel.Variable("result", cel.DynType),
		cel.Variable("item", cel.DynType),
		cel.Variable("index", cel.IntType),
		cel.Variable("answer", cel.DynType),
	)
})

func zonedFunctions() []*celenv.Function {
	zoned := map[string]string{
		overloads.TimeGetFullYear:     overloads.TimestampToYearWithTz,
		overloads.TimeGetMonth:        overloads.TimestampToMonthWithTz,
		overloads.TimeGetDayOfYear:    overloads.TimestampToDayOfYearWithTz,
		overloads.TimeGetDayOfMonth:   overloads.TimestampToDayOfMonthZeroBasedWithTz,
		overloads.TimeGetDate:         overloads.TimestampToDayOfMonthOneBasedWithTz,
		overloads.TimeGetDayOfWeek:    overloads.TimestampToDayOfWeekWithTz,
		overloads.TimeGetHours:        overloads.TimestampToHoursWithTz,
		overloads.TimeGetMinutes:      overloads.TimestampToMinutesWithTz,
		overloads.TimeGetSeconds:      overloads.TimestampToSecondsWithTz,
		overloads.TimeGetMilliseconds: overloads.TimestampToMillisecondsWithTz,
	}
	var functions []*celenv.Function
	for _, name := range sortedKeys(zoned) {
		functions = append(functions, celenv.NewFunction(name, &celenv.Overload{ID: zoned[name]}))
	}
	return functions
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func newExpression(text string, limits Limits) (e *expression) {
	e = &expression{}
	if len(text) > limits.MaxExpressionBytes {
		e.err = &ExpressionError{Code: codeExpressionInvalid,
			Message: fmt.Sprintf("the expression has more than %d bytes (max_expression_bytes)", limits.MaxExpressionBytes)}
		return e
	}
	defer func() {
		if recover() != nil {
			e.program, e.err = nil, &ExpressionError{Code: codeExpressionInvalid, Message: "the expression cannot be compiled"}
		}
	}()
	env, err := celEnvironment()
	if err != nil {
		e.err = &ExpressionError{Code: codeExpressionInvalid, Message: "the expression language is not available"}
		return e
	}
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		e.err = invalidAt(issues, "the expression is not valid CEL")
		return e
	}
	e.inspect(parsed)
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		e.err = invalidAt(issues, "the types in the expression do not fit, or a function does not exist")
		if name := e.firstUnknown(); name != "" {
			e.err.Code, e.err.unknown = codeExpressionUnknownName, name
			e.err.Message = fmt.Sprintf("the expression has no variable %s", quote(name))
		}
		return e
	}
	if t := checked.OutputType(); !t.IsExactType(types.BoolType) && !t.IsExactType(types.DynType) {
		e.err = &ExpressionError{Code: codeExpressionInvalid, Message: "the expression does not give true or false"}
		return e
	}
	program, err := env.Program(checked, cel.CostLimit(uint64(limits.MaxExpressionCost)))
	if err != nil {
		e.err = &ExpressionError{Code: codeExpressionInvalid, Message: "the expression cannot be compiled"}
		return e
	}
	e.program = program
	return e
}

// invalidAt keeps the place of a library's complaint and drops its words.
func invalidAt(issues *cel.Issues, message string) *ExpressionError {
	err := &ExpressionError{Code: codeExpressionInvalid, Message: message}
	if all := issues.Errors(); len(all) > 0 && all[0].Location != nil && all[0].Location.Line() > 0 {
		err.Line, err.Column = all[0].Location.Line(), max(1, all[0].Location.Column()+1)
		err.Message = fmt.Sprintf("%s (line %d, column %d)", message, err.Line, err.Column)
	}
	return err
}

// knownNames are the identifiers that are neither variables nor bound in the expression: types and name spaces.
var knownNames = []string{"bool", "bytes", "double", "duration", "dyn", "google", "int", "list", "map", "null_type", "optional",
	"optional_type", "string", "timestamp", "type", "uint"}

// inspect gathers the variables, steps and artifacts that the text names.
func (e *expression) inspect(parsed *cel.Ast) {
	bound := map[string]bool{}
	names := map[string]bool{}
	steps, artifacts := map[string]bool{}, map[string]bool{}
	named := func(operand celast.Expr, name string) {
		if operand.Kind() != celast.IdentKind {
			return
		}
		switch operand.AsIdent() {
		case "steps":
			steps[name] = true
		case "artifacts":
			artifacts[name] = true
		}
	}
	celast.PreOrderVisit(parsed.NativeRep().Expr(), celast.NewExprVisitor(func(x celast.Expr) {
		switch x.Kind() {
		case celast.IdentKind:
			names[x.AsIdent()] = true
		case celast.SelectKind:
			named(x.AsSelect().Operand(), x.AsSelect().FieldName())
		case celast.CallKind:
			call := x.AsCall()
			switch call.FunctionName() {
			case operators.Index, operators.OptIndex, operators.OptSelect:
				if args := call.Args(); len(args) == 2 && args[1].Kind() == celast.LiteralKind {
					if s, ok := args[1].AsLiteral().(types.String); ok {
						named(args[0], string(s))
					}
				}
			}
		case celast.ComprehensionKind:
			c := x.AsComprehension()
			bound[c.IterVar()], bound[c.IterVar2()], bound[c.AccuVar()] = true, true, true
		}
	}))
	for _, name := range sortedKeys(names) {
		if !bound[name] && !slices.Contains(knownNames, name) && !strings.HasPrefix(name, "@") {
			e.variables = append(e.variables, strings.TrimPrefix(name, "."))
		}
	}
	e.steps, e.artifacts = sortedKeys(steps), sortedKeys(artifacts)
}

var allVariables = []string{"steps", "run", "artifacts", "item", "index", "result", "answer"}

func (e *expression) firstUnknown() string {
	for _, name := range e.variables {
		if !slices.Contains(allVariables, name) {
			return name
		}
	}
	return ""
}
