package run

import runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

// Explain says in one sentence what an event says and why it came to be.
func Explain(e *runv1.Event) string { return EventType(e) }
