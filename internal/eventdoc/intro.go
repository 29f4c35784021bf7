package main

// intro is the part of the document that is written by hand.
const intro = `<!-- Written by go run ./internal/eventdoc from proto/cairn/run/v1/event.proto. Change the comments there. -->

# Events

Everything that happens to a run is an event in its log. The run store publishes each one on NATS, for any client:

` + "```sh" + `
nats sub 'cairn.event.>'                  # all events
nats sub 'cairn.event.PlanCreated.>'      # one type
nats sub 'cairn.event.*.r2iyqk4ug5x6b'    # one run
` + "```" + `

- The subject is ` + "`cairn.event.<type>.<run>`" + `. The stream CAIRN_EVENTS keeps events for a day and at most 1 GB by default; the
  log keeps them for good (` + "`cairn events RUN`, `GET /v1/runs/{run_id}/events`" + `).
- Each event comes at least once, and the events of one run come in their order. A repeat has the same ` + "`id`" + `, which is also the
  message id (` + "`Nats-Msg-Id`" + `), so that the stream drops repeats within its duplicate window.
- On a single node CAIRN_EVENTS is not synced to disk message by message: a power cut may take its newest events, which the log has.
- Feeding can be turned off (` + "`cairn runstore --no-feed`" + `). Several run stores share the feed.

## Form

A message is one [CloudEvent](https://cloudevents.io) 1.0 in structured JSON mode
(` + "`Content-Type: application/cloudevents+json; charset=UTF-8`" + `), on one line:

| attribute | value |
|---|---|
| ` + "`specversion`" + ` | ` + "`1.0`" + ` |
| ` + "`id`" + ` | ` + "`<run>/<revision>`" + `: the event's address |
| ` + "`source`" + ` | ` + "`cairn/<tenant>`, `cairn/default`" + ` where there is none |
| ` + "`type`" + ` | ` + "`cairn.run.v1.<type>`" + `: the name of the body's message in the contract |
| ` + "`subject`, `partitionkey`" + ` | the run id |
| ` + "`time`" + ` | the commit's time |
| ` + "`traceparent`, `tracestate`" + ` | W3C trace context of what led to the event; also NATS headers; absent without one |
| ` + "`datacontenttype`" + ` | ` + "`application/json`" + ` |
| ` + "`data`" + ` | the event, as below |
| ` + "`dataref`" + ` | instead of ` + "`data`" + `, where the event is larger than a NATS message may be, or cannot be shown as JSON: its path at the gateway |

In ` + "`data`" + `, field names are in snake_case, enums are short lower-case names, times are RFC 3339, durations are like ` + "`90s`" + `, and an
empty field is left out. Values of tools and plans are plain JSON with their exact text: ` + "`9007199254740993`, `9011.00` and `null`" + `
come as they were given.

An event is **recorded** (it holds what was reported: replay feeds it back) or **decided** (it follows from what was recorded:
replay must reach it again).
`

const exampleRun = "r2iyqk4ug5x6b"

// exampleBody is an example of one event type.
type exampleBody struct {
	revision int64
	// cause is the report of a recorded event, after the event that a decided one follows from.
	cause string
	after int64
	// rule and values of a decided one.
	rule, values string
	body         string
}

// examples are events of runs like examples/order.yaml.
var examples = map[string]exampleBody{
	"RunSubmitted": {1, "submit-7f3a", 0, "", "", `{"spec":{"goal":"Order one iPhone 15 Pro 256G, black, to Pudong, Shanghai",
		"input":{"customer":"c-1","budget":9011.00},"labels":[{"key":"team","value":"shop"}]},"body_digest":"5e6a…"}`},
	"PlanRequested": {2, "", 1, "plan", "", `{"request_id":"plan-1","attempt":1}`},
	"PlanCreated": {3, "plan-1", 0, "", "", `{"request_id":"plan-1","plan":{"id":"p1","version":1,"goal":"Order one iPhone 15 Pro 256G",
		"steps":[{"id":"stock","objective":"See whether it is there","action":{"kind":"tool","name":"stock.check","arguments":{"sku":"15P-256"}},
		"expect":{"checks":[{"expression":"result.stock > 0","message":"out of stock","assumption":"in_stock"}]},"on_failure":"replan_remaining"}],
		"assumptions":[{"id":"in_stock","text":"The 256G model is in stock"}],"created_by":"template"},"plan_digest":"b1c4…",
		"planner":{"source":"template","name":"order-phone"}}`},
	"PlanRejected": {3, "plan-1", 0, "", "", `{"request_id":"plan-1","findings":[{"severity":"error","code":"unknown_tool","pointer":"/steps/0/action/name",
		"step_id":"stock","message":"There is no tool stock.chek.","hint":"The nearest is stock.check.","values":{"nearest":["stock.check"]},"layer":"capability"}],
		"text":"{\"goal\":…}","planner":{"source":"model","name":"some-model","calls":1}}`},
	"PlanPatched": {14, "replan-1", 0, "", "", `{"request_id":"replan-1","patch":{"base_version":1,"update":[{"id":"price","action":{"kind":"tool",
		"name":"price.compute","arguments":{"sku":"15P-128"}}}],"reason":"256G is out of stock, 128G is there"},"version":2,"plan_digest":"77d0…",
		"created_by":"replanner"}`},
	"PatchRejected": {14, "replan-1", 0, "", "", `{"request_id":"replan-1","findings":[{"severity":"error","code":"step_immutable","pointer":"/remove/0",
		"step_id":"parse","message":"Step parse has finished."}]}`},
	"PlanningFailed": {3, "plan-1-failed", 0, "", "", `{"request_id":"plan-1","error":{"code":"planner_refused","message":"The model refuses.","class":"plan"}}`},
	"ReplanRequested": {13, "", 12, "on_failure", `{"policy":"replan_remaining","replans":0}`, `{"request_id":"replan-1","base_version":1,
		"scope":"remaining","step_id":"stock","error":{"code":"check_failed","message":"out of stock","class":"plan"},
		"falsified_assumptions":["in_stock"],"attempt":1}`},
	"ReplanDeclined": {14, "replan-1", 0, "", "", `{"request_id":"replan-1","reason":"Nothing in stock fits the wish.","answer":{"ordered":false}}`},
	"StepStarted":    {20, "", 19, "ready", "", `{"step_id":"pause","due":"2026-01-02T15:05:05Z"}`},
	"StepExpanded":   {8, "", 7, "for_each", `{"items":2}`, `{"step_id":"notify","items":["a@example.com","b@example.com"]}`},
	"ActionRequested": {5, "", 3, "ready", "", `{"action_id":"stock-1","step_id":"stock","attempt":1,"tool":"stock.check",
		"tool_version":"1","arguments":{"sku":"15P-256"},"idempotency_key":"0f9d…","not_after":"2026-01-02T15:04:35Z","idempotent":true}`},
	"ActionRevocationRequested": {17, "", 16, "revoke", `{"action":"pay-1","idempotent":false,"reason":"timeout"}`, `{"action_id":"pay-1","step_id":"pay","reason":"timeout"}`},
	"ObservationRecorded": {6, "result-stock-1", 0, "", "", `{"action_id":"stock-1","step_id":"stock","attempt":1,"observation":{"outcome":"success",
		"output":{"inline":{"stock":3,"id":9007199254740993,"price":9011.00}},"started_at":"2026-01-02T15:04:05Z","duration":"0.012s","executed_by":"shop-1"}}`},
	"StepSucceeded": {7, "", 6, "observed", "", `{"step_id":"stock"}`},
	"StepFailed":    {12, "", 11, "check", "", `{"step_id":"stock","error":{"code":"check_failed","message":"out of stock","class":"plan"},"policy":"replan_remaining"}`},
	"StepSkipped":   {8, "", 7, "condition", `{"when":"steps.stock.result.stock == 0","value":false}`, `{"step_id":"apologise","reason":"condition_false"}`},
	"StepRetryScheduled": {11, "", 10, "retry", `{"made":1,"max_attempts":3}`, `{"step_id":"pay","attempt":2,"due":"2026-01-02T15:04:06Z",
		"error":{"code":"unavailable","message":"The bank does not answer.","class":"execution","retryable":true}}`},
	"UserInputRequested": {9, "", 8, "confirm", `{"risk":"high"}`, `{"request_id":"input-1","step_id":"pay","purpose":"approval",
		"question":"Pay 9011.00?","schema":{"type":"object","properties":{"approved":{"type":"boolean"}},"required":["approved"]}}`},
	"UserInputReceived":  {10, "input-1", 0, "", "", `{"request_id":"input-1","answer":{"approved":true},"by":"mei"}`},
	"UserInputWithdrawn": {14, "", 13, "outcome_known", `{"action":"pay-1","request":"input-1"}`, `{"request_id":"input-1","step_id":"pay","reason":"outcome_known"}`},
	"TimerFired":         {21, "timer", 0, "", "", `{"timer":"wait","step_id":"pause","due":"2026-01-02T15:05:05Z"}`},
	"CancelRequested":    {15, "cancel-9c", 0, "", "", `{"reason":"changed my mind","by":"mei"}`},
	"ReportRefused":      {16, "result-pay-9", 0, "", "", `{"report":"result_reported","code":"unknown_action","message":"No action pay-9 was requested."}`},
	"LimitWarned":        {400, "", 399, "max_events", "", `{"limit":"max_events","value":400,"maximum":500}`},
	"RunCompleted":       {22, "", 21, "complete", "", `{"answer":{"ordered":true,"order":"o-77"}}`},
	"RunFailed":          {22, "", 21, "step_failed", `{"step":"pay","policy":"fail"}`, `{"error":{"code":"unavailable","message":"The bank does not answer.","class":"execution","retryable":true}}`},
	"RunCancelled":       {18, "", 17, "cancel", "", `{"reason":"changed my mind"}`},
	"StepCancelled":      {17, "", 15, "cancel", "", `{"step_id":"pay"}`},
	"RunQuarantined":     {9, "result-stock-1", 0, "", "", `{"reason":"the core failed on this report","at_revision":8,"report_id":"result-stock-1"}`},
}
