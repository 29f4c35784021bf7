package plan

import "time"

// Limits bounds what a plan may ask for. A zero field takes the default named in DefaultLimits.
type Limits struct {
	// MaxPlanBytes bounds the text of a plan or patch document, in bytes.
	MaxPlanBytes int
	// MaxSteps bounds the steps of a plan.
	MaxSteps int
	// MaxDepth bounds the nesting of JSON arrays and objects in documents, arguments and schemas.
	MaxDepth int
	// MaxNumberExponent bounds the absolute value of a JSON number's exponent.
	MaxNumberExponent int
	// MaxNumberDigits bounds the digits of a JSON number.
	MaxNumberDigits int
	// MaxResolvedBytes bounds a step's arguments after references were replaced, in bytes.
	MaxResolvedBytes int
	// MaxReferences bounds the references in one step's arguments.
	MaxReferences int
	// MaxExpressionBytes bounds the text of one condition or check, in bytes.
	MaxExpressionBytes int
	// MaxExpressionCost bounds the work of evaluating one condition or check, in CEL cost units.
	MaxExpressionCost int
	// MaxSchemaSteps bounds the subschema visits of one validation against a JSON Schema that has references.
	MaxSchemaSteps int
	// MaxAttempts bounds retry.max_attempts.
	MaxAttempts int
	// MaxRetryDelay bounds retry.delay and retry.max_delay.
	MaxRetryDelay time.Duration
	// MaxRetryFactor bounds retry.factor.
	MaxRetryFactor float64
	// MaxTimeout bounds an action's timeout and a user.ask step's timeout.
	MaxTimeout time.Duration
	// MaxWait bounds the duration of a wait step.
	MaxWait time.Duration
	// MaxTextBytes bounds each of goal, title, objective, reason, an assumption and a check's message, in bytes.
	MaxTextBytes int
	// MaxFindings bounds the findings of one answer; what is beyond is counted in the finding more_findings.
	MaxFindings int
}

// DefaultLimits returns the limits that apply where none are configured.
func DefaultLimits() Limits {
	return Limits{
		MaxPlanBytes:       6 << 20,
		MaxSteps:           20_000,
		MaxDepth:           100,
		MaxNumberExponent:  400,
		MaxNumberDigits:    1_000,
		MaxResolvedBytes:   4 << 20,
		MaxReferences:      20_000,
		MaxExpressionBytes: 8 << 10,
		MaxExpressionCost:  200_000,
		MaxSchemaSteps:     1_000_000,
		MaxAttempts:        100,
		MaxRetryDelay:      24 * time.Hour,
		MaxRetryFactor:     100,
		MaxTimeout:         7 * 24 * time.Hour,
		MaxWait:            366 * 24 * time.Hour,
		MaxTextBytes:       16 << 10,
		MaxFindings:        1_000,
	}
}

// withDefaults fills the fields that are zero.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	orInt := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	orDuration := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
	}
	orInt(&l.MaxPlanBytes, d.MaxPlanBytes)
	orInt(&l.MaxSteps, d.MaxSteps)
	orInt(&l.MaxDepth, d.MaxDepth)
	orInt(&l.MaxNumberExponent, d.MaxNumberExponent)
	orInt(&l.MaxNumberDigits, d.MaxNumberDigits)
	orInt(&l.MaxResolvedBytes, d.MaxResolvedBytes)
	orInt(&l.MaxReferences, d.MaxReferences)
	orInt(&l.MaxExpressionBytes, d.MaxExpressionBytes)
	orInt(&l.MaxExpressionCost, d.MaxExpressionCost)
	orInt(&l.MaxSchemaSteps, d.MaxSchemaSteps)
	orInt(&l.MaxAttempts, d.MaxAttempts)
	orDuration(&l.MaxRetryDelay, d.MaxRetryDelay)
	orDuration(&l.MaxTimeout, d.MaxTimeout)
	orDuration(&l.MaxWait, d.MaxWait)
	orInt(&l.MaxTextBytes, d.MaxTextBytes)
	orInt(&l.MaxFindings, d.MaxFindings)
	if l.MaxRetryFactor == 0 {
		l.MaxRetryFactor = d.MaxRetryFactor
	}
	return l
}
