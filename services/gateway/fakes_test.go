package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/bus"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// world is a small executor and run store in one: it answers reports and tells of the events that they led to.
type world struct {
	apiv1.UnimplementedQueryServiceServer

	mu      sync.Mutex
	runs    map[string]*fakeRun
	changed chan struct{}
	reports []*runv1.Report
	filters []string
	watches int
	// refuse answers reports of a run with a refusal of this code.
	refuse map[string]*runv1.Answer
	// hold keeps a cancelled run from ending until it is closed.
	hold chan struct{}
	// drop is how many watches break off after one event.
	drop int
}

type fakeRun struct {
	spec   *runv1.RunSpec
	tenant string
	digest string
	status runv1.RunStatus
	events []*runv1.Event
}

func newWorld() *world {
	return &world{runs: map[string]*fakeRun{}, changed: make(chan struct{}), refuse: map[string]*runv1.Answer{}}
}

// own answers reports on NATS until the test ends.
func (w *world) own(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	c, err := js.CreateConsumer(t.Context(), bus.StreamReports, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	consuming, err := c.Consume(func(m jetstream.Msg) {
		r := &runv1.Report{}
		if err := proto.Unmarshal(m.Data(), r); err != nil {
			t.Error(err)
		}
		if err := bus.SendAnswer(js.Conn(), m.Headers(), w.judge(r)); err != nil {
			t.Error(err)
		}
		_ = m.Ack()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(consuming.Stop)
}

func (w *world) judge(r *runv1.Report) *runv1.Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, r)
	if a := w.refuse[r.GetRunId()]; a != nil {
		return a
	}
	run := w.runs[r.GetRunId()]
	answer := func(o runv1.AnswerOutcome) *runv1.Answer {
		return &runv1.Answer{RunId: r.GetRunId(), Outcome: o, Revision: int64(len(run.events)), LogSequence: 1, Status: run.status}
	}
	refused := func(code string) *runv1.Answer {
		return &runv1.Answer{RunId: r.GetRunId(), Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, Code: code, Message: "refused: " + code}
	}
	if b := r.GetSubmitRun(); b != nil {
		data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(b.GetSpec())
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		switch {
		case run == nil:
			run = &fakeRun{spec: b.GetSpec(), tenant: r.GetTenant(), digest: digest, status: runv1.RunStatus_RUN_STATUS_RUNNING}
			w.runs[r.GetRunId()] = run
			w.append(r.GetRunId(), &runv1.Event{Body: &runv1.Event_RunSubmitted{RunSubmitted: &runv1.RunSubmitted{Spec: b.GetSpec(), BodyDigest: digest}}})
			return answer(runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED)
		case run.digest != digest:
			return refused(reasonKeyReused)
		}
		return answer(runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED)
	}
	if run == nil {
		return refused(reasonUnknownRun)
	}
	switch b := r.GetBody().(type) {
	case *runv1.Report_CancelRun:
		if ended(run.status) {
			a := refused(reasonRunClosed)
			a.Status = run.status
			return a
		}
		run.status = runv1.RunStatus_RUN_STATUS_CANCELLING
		w.append(r.GetRunId(), &runv1.Event{Body: &runv1.Event_CancelRequested{CancelRequested: &runv1.CancelRequested{Reason: b.CancelRun.GetReason()}}})
		a, hold := answer(runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED), w.hold
		go func() {
			if hold != nil {
				<-hold
			}
			w.add(r.GetRunId(), &runv1.Event{Body: &runv1.Event_RunCancelled{RunCancelled: &runv1.RunCancelled{Reason: b.CancelRun.GetReason()}}})
		}()
		return a
	case *runv1.Report_UserInput:
		w.append(r.GetRunId(), &runv1.Event{Body: &runv1.Event_UserInputReceived{UserInputReceived: &runv1.UserInputReceived{
			RequestId: b.UserInput.GetRequestId(), Answer: b.UserInput.GetAnswer(), By: b.UserInput.GetBy(),
		}}})
	case *runv1.Report_PatchProposed:
		w.append(r.GetRunId(), &runv1.Event{Body: &runv1.Event_PlanPatched{PlanPatched: &runv1.PlanPatched{Patch: b.PatchProposed.GetPatch()}}})
	}
	return answer(runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED)
}

// add appends an event to a run.
func (w *world) add(runID string, e *runv1.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.append(runID, e)
}

func (w *world) append(runID string, e *runv1.Event) {
	run := w.runs[runID]
	if run == nil {
		run = &fakeRun{status: runv1.RunStatus_RUN_STATUS_RUNNING, tenant: defaultTenant}
		w.runs[runID] = run
	}
	e.RunId, e.Revision, e.Tenant = runID, int64(len(run.events))+1, run.tenant
	e.Id = fmt.Sprintf("%s/%d", runID, e.GetRevision())
	run.events = append(run.events, e)
	if s := endOf(e); s != runv1.RunStatus_RUN_STATUS_UNSPECIFIED {
		run.status = s
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) reported() []*runv1.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*runv1.Report(nil), w.reports...)
}

// openWatches is how many WatchRun calls are being served.
func (w *world) openWatches() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches
}

func (w *world) find(id string) (*fakeRun, error) {
	run := w.runs[id]
	if run == nil {
		return nil, status.Errorf(codes.NotFound, "there is no run %s", id)
	}
	return run, nil
}

func (w *world) GetRun(_ context.Context, r *apiv1.GetRunRequest) (*apiv1.GetRunResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	run, err := w.find(r.GetRunId())
	if err != nil {
		return nil, err
	}
	return &apiv1.GetRunResponse{Run: &runv1.RunState{RunId: r.GetRunId(), Tenant: run.tenant, Spec: run.spec, Status: run.status, Revision: int64(len(run.events))}}, nil
}

// ListRuns answers all runs, whatever is asked, as a run store with a broken filter would.
func (w *world) ListRuns(_ context.Context, r *apiv1.ListRunsRequest) (*apiv1.ListRunsResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.filters = append(w.filters, r.GetFilter())
	page := &apiv1.ListRunsResponse{}
	for id, run := range w.runs {
		page.Runs = append(page.Runs, &apiv1.RunSummary{RunId: id, Tenant: run.tenant})
	}
	return page, nil
}

func (w *world) ListEvents(_ context.Context, r *apiv1.ListEventsRequest) (*apiv1.ListEventsResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	run, err := w.find(r.GetRunId())
	if err != nil {
		return nil, err
	}
	return &apiv1.ListEventsResponse{Events: run.events[min(int(r.GetAfterRevision()), len(run.events)):]}, nil
}

func (w *world) WatchRun(r *apiv1.WatchRunRequest, s grpc.ServerStreamingServer[apiv1.WatchRunResponse]) error {
	w.mu.Lock()
	w.watches++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.watches--
		w.mu.Unlock()
	}()
	for next, sent := int(r.GetAfterRevision()), 0; ; {
		w.mu.Lock()
		run, err := w.find(r.GetRunId())
		if err != nil {
			w.mu.Unlock()
			return err
		}
		events, over, changed := run.events[min(next, len(run.events)):], ended(run.status), w.changed
		breaks := w.drop > 0 && sent+len(events) > 0
		if breaks {
			w.drop--
			events = events[:min(1, len(events))]
		}
		w.mu.Unlock()
		for _, e := range events {
			if err := s.Send(&apiv1.WatchRunResponse{Event: e}); err != nil {
				return err
			}
			next, sent = int(e.GetRevision()), sent+1
		}
		switch {
		case breaks:
			return status.Error(codes.Unavailable, "the run store restarts")
		case over:
			return nil
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (w *world) ExportRun(r *apiv1.ExportRunRequest, s grpc.ServerStreamingServer[apiv1.ExportRunResponse]) error {
	w.mu.Lock()
	run, err := w.find(r.GetRunId())
	w.mu.Unlock()
	if err != nil {
		return err
	}
	for _, e := range run.events {
		if err := s.Send(&apiv1.ExportRunResponse{Commit: &runv1.Commit{RunId: r.GetRunId(), Tenant: run.tenant, Events: []*runv1.Event{e}}}); err != nil {
			return err
		}
	}
	return nil
}

// listenAsStore serves the questions on an address of its own, "127.0.0.1:0" for any, and returns it.
func (w *world) listenAsStore(t *testing.T, address string) (string, *grpc.Server) {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	apiv1.RegisterQueryServiceServer(s, w)
	go func() { _ = s.Serve(ln) }()
	t.Cleanup(s.Stop)
	return ln.Addr().String(), s
}
