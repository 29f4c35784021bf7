package runstore

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/run"
)

// ExplainRun follows causes from one event back to the submission: a decided event to the event it followed from, a
// recorded one that answers a request to that request.
func (q *queries) ExplainRun(ctx context.Context, r *apiv1.ExplainRunRequest) (*apiv1.ExplainRunResponse, error) {
	if r.GetRevision() < 0 {
		return nil, invalid("revision", "it is negative")
	}
	h, err := q.find(ctx, r.GetRunId(), nil)
	if err != nil {
		return nil, err
	}
	e, err := q.toExplain(ctx, r, h)
	if err != nil {
		return nil, asStatus(r.GetRunId(), err)
	}
	requests, err := q.requests(ctx, r.GetRunId(), e.GetRevision())
	if err != nil {
		return nil, asStatus(r.GetRunId(), err)
	}
	out := &apiv1.ExplainRunResponse{}
	for e != nil && len(out.Chain) < q.config.MaxChain {
		out.Chain = append(out.Chain, &apiv1.Reason{Event: e, Text: run.Explain(e)})
		cause := e.GetCause().GetRevision()
		if e.GetKind() == runv1.EventKind_EVENT_KIND_RECORDED {
			cause = requests[requestOf(e)]
		}
		if cause <= 0 || cause >= e.GetRevision() {
			break
		}
		if e, err = q.event(ctx, r.GetRunId(), cause); err != nil {
			return nil, asStatus(r.GetRunId(), err)
		}
	}
	return out, nil
}

// toExplain chooses the event: the one asked for, the newest of a step, the run's end, or its newest.
func (q *queries) toExplain(ctx context.Context, r *apiv1.ExplainRunRequest, h head) (*runv1.Event, error) {
	runID, step := r.GetRunId(), r.GetStepId()
	if step == "" {
		revision := h.revision
		if h.endedRevision > 0 {
			revision = h.endedRevision
		}
		if r.GetRevision() > 0 {
			revision = r.GetRevision()
		}
		e, err := q.event(ctx, runID, revision)
		if err == nil && e == nil {
			err = failure(codes.NotFound, reasonUnknownEvent, fmt.Sprintf("run %s has no event %d, its newest is %d", runID, revision, h.revision),
				map[string]string{"run_id": runID, "newest": fmt.Sprint(h.revision)})
		}
		return e, err
	}
	var found *runv1.Event
	err := q.events(ctx, runID, 0, func(e *runv1.Event) (bool, error) {
		if stepOf(e) == step && (r.GetRevision() == 0 || r.GetRevision() == e.GetRevision()) {
			found = e
		}
		return true, nil
	})
	if err == nil && found == nil {
		text := fmt.Sprintf("no event of run %s is about step %q", runID, shorten(step, 80))
		if r.GetRevision() > 0 {
			text = fmt.Sprintf("event %d of run %s is not about step %q", r.GetRevision(), runID, shorten(step, 80))
		}
		err = failure(codes.NotFound, reasonUnknownStep, text, map[string]string{"run_id": runID, "step_id": shorten(step, 80)})
	}
	return found, err
}

// event returns one event, nil where there is none.
func (q *queries) event(ctx context.Context, runID string, revision int64) (*runv1.Event, error) {
	var found *runv1.Event
	err := q.events(ctx, runID, revision-1, func(e *runv1.Event) (bool, error) {
		if e.GetRevision() == revision {
			found = e
		}
		return false, nil
	})
	return found, err
}

// requests finds the events before a revision that asked for something, by what they asked for.
func (q *queries) requests(ctx context.Context, runID string, before int64) (map[string]int64, error) {
	asked := map[string]int64{}
	err := q.events(ctx, runID, 0, func(e *runv1.Event) (bool, error) {
		if e.GetRevision() >= before {
			return false, nil
		}
		if key := requestOf(e); key != "" && e.GetKind() == runv1.EventKind_EVENT_KIND_DECIDED && asked[key] == 0 {
			asked[key] = e.GetRevision()
		}
		return true, nil
	})
	return asked, err
}

// requestOf names the action or the request that an event asks for or answers, "" for none.
func requestOf(e *runv1.Event) string {
	for _, field := range []protoreflect.Name{"action_id", "request_id"} {
		if id := bodyField(e, field); id != "" {
			return string(field) + " " + id
		}
	}
	return ""
}

// stepOf returns the step that an event is about, "" for none: every such body names it in a field of this name.
func stepOf(e *runv1.Event) string { return bodyField(e, "step_id") }

// bodyField returns a text field of an event's body, "" where it has none of that name.
func bodyField(e *runv1.Event, name protoreflect.Name) string {
	m := e.ProtoReflect()
	body := m.WhichOneof(m.Descriptor().Oneofs().ByName("body"))
	if body == nil {
		return ""
	}
	b := m.Get(body).Message()
	f := b.Descriptor().Fields().ByName(name)
	if f == nil || f.Kind() != protoreflect.StringKind {
		return ""
	}
	return b.Get(f).String()
}
