package telemetry

import "go.opentelemetry.io/otel/attribute"

// Names of span and log attributes. Those of model calls follow OpenTelemetry's semantic conventions for generative AI.
const (
	RunID     = attribute.Key("cairn.run_id")
	StepID    = attribute.Key("cairn.step_id")
	ActionID  = attribute.Key("cairn.action_id")
	RequestID = attribute.Key("cairn.request_id")
	Tenant    = attribute.Key("cairn.tenant")
	Partition = attribute.Key("cairn.partition")
	Revision  = attribute.Key("cairn.revision")
	Attempt   = attribute.Key("cairn.attempt")
	Tool      = attribute.Key("cairn.tool")
	Strategy  = attribute.Key("cairn.planner.strategy")
	Source    = attribute.Key("cairn.planner.source")
	Outcome   = attribute.Key("cairn.outcome")
	Prompt    = attribute.Key("cairn.prompt_version")

	MessagingSystem      = attribute.Key("messaging.system")
	MessagingOperation   = attribute.Key("messaging.operation.name")
	MessagingDestination = attribute.Key("messaging.destination.name")
	MessagingConsumer    = attribute.Key("messaging.consumer.group.name")
	MessagingDeliveries  = attribute.Key("cairn.messaging.delivery_count")

	ErrorType = attribute.Key("error.type")

	GenAIOperation      = attribute.Key("gen_ai.operation.name")
	GenAIProvider       = attribute.Key("gen_ai.provider.name")
	GenAIRequestModel   = attribute.Key("gen_ai.request.model")
	GenAIResponseModel  = attribute.Key("gen_ai.response.model")
	GenAIResponseID     = attribute.Key("gen_ai.response.id")
	GenAIFinishReasons  = attribute.Key("gen_ai.response.finish_reasons")
	GenAIInputTokens    = attribute.Key("gen_ai.usage.input_tokens")
	GenAIOutputTokens   = attribute.Key("gen_ai.usage.output_tokens")
	GenAITokenType      = attribute.Key("gen_ai.token.type")
	GenAIOutputType     = attribute.Key("gen_ai.output.type")
	GenAIRequestMaxToks = attribute.Key("gen_ai.request.max_tokens")
	GenAITemperature    = attribute.Key("gen_ai.request.temperature")
	GenAIToolName       = attribute.Key("gen_ai.tool.name")
	ServerAddress       = attribute.Key("server.address")
	ServerPort          = attribute.Key("server.port")
)
