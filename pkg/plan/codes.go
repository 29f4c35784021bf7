package plan

// Codes of findings. They are stable: docs/plan.md lists every one, and a test holds the two together.
const (
	// Reading the document.
	codeInvalidJSON       = "invalid_json"
	codeDuplicateKey      = "duplicate_key"
	codeNumberOutOfRange  = "number_out_of_range"
	codeTooDeep           = "too_deep"
	codeUnknownField      = "unknown_field"
	codeWrongType         = "wrong_type"
	codeInvalidValue      = "invalid_value"
	codeMissingField      = "missing_field"
	codeConflictingFields = "conflicting_fields"
	codeArgsStringDecoded = "args_string_decoded"
	codeArgsNotObject     = "args_not_object"
	codePlanTooLarge      = "plan_too_large"
	codeTextTooLong       = "text_too_long"
	codeInvalidID         = "invalid_id"
	codeInvalidDuration   = "invalid_duration"
	codeMoreFindings      = "more_findings"

	// Capability.
	codeUnknownTool     = "unknown_tool"
	codeToolNotAllowed  = "tool_not_allowed"
	codeNotPermitted    = "not_permitted"
	codeUnknownControl  = "unknown_control"
	codeModeUnavailable = "mode_unavailable"

	// Arguments and references.
	codeSchemaMismatch     = "schema_mismatch"
	codeSchemaInvalid      = "schema_invalid"
	codeMissingArgument    = "missing_argument"
	codeUnknownArgument    = "unknown_argument"
	codeNullDropped        = "null_dropped"
	codeRefSyntax          = "ref_syntax"
	codeRefWithSiblings    = "ref_with_siblings"
	codeRefInDefault       = "ref_in_default"
	codeRefUnknownRoot     = "ref_unknown_root"
	codeRefUnknownStep     = "ref_unknown_step"
	codeRefUnknownArtifact = "ref_unknown_artifact"
	codeRefUnknownPath     = "ref_unknown_path"
	codeRefTypeMismatch    = "ref_type_mismatch"
	codeRefToItself        = "ref_to_itself"
	codeRefOutsideForEach  = "ref_outside_for_each"
	codeRefUnknownInput    = "ref_unknown_input"
	codeTooManyReferences  = "too_many_references"
	codeForEachNotList     = "for_each_not_list"
	codeInvalidControl     = "invalid_control_arguments"
	codeDependencyAdded    = "dependency_added"

	// Semantics and policy.
	codeEmptyPlan             = "empty_plan"
	codeEmptyGoal             = "empty_goal"
	codeEmptyObjective        = "empty_objective"
	codeDuplicateID           = "duplicate_id"
	codeDanglingDependency    = "dangling_dependency"
	codeDuplicateDependency   = "duplicate_dependency"
	codeCycle                 = "cycle"
	codeJoinWithoutInputs     = "join_without_inputs"
	codeRiskWithoutConfirm    = "risk_without_confirmation"
	codeSkipPolicyNeedsOption = "skip_policy_needs_optional"
	codeRetryOutOfRange       = "retry_out_of_range"
	codeTimeoutOutOfRange     = "timeout_out_of_range"
	codeExpressionInvalid     = "expression_invalid"
	codeExpressionUnknownName = "expression_unknown_name"
	codeUnknownAssumption     = "unknown_assumption"
	codeDuplicateArtifact     = "duplicate_artifact"
	codeInvalidResult         = "invalid_result"
	codeControlUnsupported    = "control_unsupported"

	// Patches.
	codeVersionConflict = "version_conflict"
	codeStepImmutable   = "step_immutable"
	codeStepUnderWay    = "step_under_way"
	codeUnknownStep     = "unknown_step"
	codeEmptyPatch      = "empty_patch"
)

// Layers of validation, in order.
const (
	layerSchema     = "schema"
	layerCapability = "capability"
	layerArguments  = "arguments"
	layerSemantics  = "semantics"
)
