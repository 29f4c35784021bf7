package runstore

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// CloudEvent is an event in the structured JSON mode of CloudEvents 1.0, with data as exact JSON: numbers and texts stand
// as they do in the log. With withData false it refers to the event by the gateway's path instead (extension dataref).
func CloudEvent(e *runv1.Event, withData bool) ([]byte, error) {
	name := EventType(e)
	if name == "" {
		return nil, fmt.Errorf("event %s has a type that this binary does not know", e.GetId())
	}
	var out []byte
	field := func(key, value string) {
		if value == "" {
			return
		}
		quoted, _ := json.Marshal(value)
		if out == nil {
			out = append(out, '{')
		} else {
			out = append(out, ',')
		}
		out = append(append(append(append(out, '"'), key...), `":`...), quoted...)
	}
	tenant := e.GetTenant()
	if tenant == "" {
		tenant = "default"
	}
	field("specversion", "1.0")
	field("id", e.GetId())
	field("source", "cairn/"+url.PathEscape(tenant))
	field("type", "cairn.run.v1."+name)
	field("subject", e.GetRunId())
	field("time", e.GetTime().AsTime().Format(time.RFC3339Nano))
	field("partitionkey", e.GetRunId())
	field("traceparent", e.GetTrace().GetTraceparent())
	field("tracestate", e.GetTrace().GetTracestate())
	if !withData {
		field("dataref", fmt.Sprintf("/v1/runs/%s/events?after_revision=%d&page_size=1", e.GetRunId(), e.GetRevision()-1))
		return append(out, '}'), nil
	}
	field("datacontenttype", "application/json")
	data, err := exactjson.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.GetId(), err)
	}
	out = append(append(out, `,"data":`...), data...)
	return append(out, '}'), nil
}

// EventType is the name of an event's type, as PlanCreated; "" for one that this binary does not know.
func EventType(e *runv1.Event) string {
	m := e.ProtoReflect()
	body := m.WhichOneof(m.Descriptor().Oneofs().ByName("body"))
	if body == nil {
		return ""
	}
	return string(body.Message().Name())
}
