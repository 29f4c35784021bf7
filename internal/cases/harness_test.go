package cases

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cairnrun/cairn/internal/dev"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/run"
	"github.com/cairnrun/cairn/pkg/tool"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// patience is how long a test waits for what must come; a busy machine may take its time.
const patience = 3 * time.Minute

// shared is the stack of all tests that restart nothing.
var shared *system

// model answers all planners of this package.
var model *provider

func TestMain(m *testing.M) {
	os.Exit(func() int {
		model = startProvider()
		defer model.server.Close()
		// The services take the model from the environment, as in production.
		_ = os.Setenv("CAIRN_LLM_BASE_URL", model.server.URL)
		_ = os.Setenv("CAIRN_LLM_MODEL", "mock")
		dir, err := os.MkdirTemp("", "cairn-cases-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		shared = &system{dir: filepath.Join(dir, "kept"), effects: newEffects()}
		if err := shared.start(); err != nil {
			panic(err)
		}
		defer shared.stop()
		return m.Run()
	}())
}

// system is all services in this process on a kept folder, the tools of these tests, and a client.
type system struct {
	dir     string
	effects *effects

	dev   *dev.Dev
	conn  *grpc.ClientConn
	runs  apiv1.RunServiceClient
	query apiv1.QueryServiceClient
	// without names services that the next start leaves out.
	without []string
	nc      *nats.Conn
	js      jetstream.JetStream
}

// ownSystem is a stack that the test may restart.
func ownSystem(t *testing.T) *system {
	t.Helper()
	s := &system{dir: filepath.Join(t.TempDir(), "kept"), effects: newEffects()}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

func (s *system) start() (err error) {
	services := slices.DeleteFunc(slices.Clone(dev.Services), func(name string) bool { return slices.Contains(s.without, name) })
	if s.dev, err = dev.Start(context.Background(), dev.Config{Dir: s.dir, NoSync: true, Services: services, Tools: map[string][]*tool.Tool{"tools": s.effects.tools()}}); err != nil {
		return err
	}
	if s.nc, s.js, err = bus.Connect(s.dev.Bus("test")); err != nil {
		return err
	}
	s.conn, err = grpc.NewClient("passthrough:///"+s.dev.Gateway(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)))
	s.runs, s.query = apiv1.NewRunServiceClient(s.conn), apiv1.NewQueryServiceClient(s.conn)
	return err
}

// stop ends every service; the folder stays.
func (s *system) stop() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.nc.Close()
	}
	s.dev.Close()
}

// restart ends every service and starts all but some again; meanwhile may change what they left.
func (s *system) restart(t *testing.T, meanwhile func(), without ...string) {
	t.Helper()
	s.stop()
	if meanwhile != nil {
		meanwhile()
	}
	s.without = without
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// history is a run as its watcher sees it.
type history struct {
	t      *testing.T
	s      *system
	id     string
	events []*runv1.Event
	state  run.State
	stream grpc.ServerStreamingClient[apiv1.WatchRunResponse]
}

func text(doc string) *planv1.JsonText { return &planv1.JsonText{Text: doc} }

// plan submits a plan and watches its run.
func (s *system) plan(t *testing.T, doc string) *history {
	t.Helper()
	return s.submit(t, &runv1.RunSpec{Plan: text(doc)})
}

func (s *system) submit(t *testing.T, spec *runv1.RunSpec) *history {
	t.Helper()
	resp, err := s.runs.SubmitRun(within(t), &apiv1.SubmitRunRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return s.watch(t, resp.GetRunId(), resp.GetPosition())
}

func (s *system) watch(t *testing.T, id string, position *apiv1.LogPosition) *history {
	t.Helper()
	stream, err := s.query.WatchRun(within(t), &apiv1.WatchRunRequest{RunId: id, Position: position})
	if err != nil {
		t.Fatal(err)
	}
	return &history{t: t, s: s, id: id, state: run.New(id), stream: stream}
}

// next waits for one event and folds it; nil: the run has ended and its watcher was told so.
func (h *history) next() *runv1.Event {
	h.t.Helper()
	m, err := h.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		h.t.Fatalf("watch run %s after %d events: %v\n%s", h.id, len(h.events), err, h.told())
	}
	e := m.GetEvent()
	if e.GetRevision() != int64(len(h.events)+1) {
		h.t.Fatalf("run %s: revision %d came after %d", h.id, e.GetRevision(), len(h.events))
	}
	h.events = append(h.events, e)
	h.state = run.Evolve(h.state, e)
	return e
}

// until waits for an event.
func (h *history) until(is func(*runv1.Event) bool) *runv1.Event {
	h.t.Helper()
	for {
		e := h.next()
		if e == nil {
			h.t.Fatalf("run %s ended before what was waited for:\n%s", h.id, h.told())
		}
		if is(e) {
			return e
		}
	}
}

func requested(step string) func(*runv1.Event) bool {
	return func(e *runv1.Event) bool { return e.GetActionRequested().GetStepId() == step }
}

func asked(step string) func(*runv1.Event) bool {
	return func(e *runv1.Event) bool { return e.GetUserInputRequested().GetStepId() == step }
}

// end waits for the run's end, and checks what holds for every run: its log can be replayed to the same decisions.
func (h *history) end() *runv1.RunState {
	h.t.Helper()
	for h.next() != nil {
	}
	if !h.state.Terminal() {
		h.t.Fatalf("the watch of run %s ended, but not the run:\n%s", h.id, h.told())
	}
	v, err := h.s.query.ReplayRun(within(h.t), &apiv1.ReplayRunRequest{RunId: h.id, Verify: true})
	if err != nil || v.GetDifference() != nil || v.GetEvents() != int64(len(h.events)) {
		h.t.Errorf("replay of run %s: %v, %v, %d events of %d", h.id, v.GetDifference(), err, v.GetEvents(), len(h.events))
	}
	return h.state.Snapshot()
}

func (h *history) completed() *runv1.RunState {
	h.t.Helper()
	s := h.end()
	if s.GetStatus() != runv1.RunStatus_RUN_STATUS_COMPLETED {
		h.t.Fatalf("run %s is %s: %v\n%s", h.id, s.GetStatus(), s.GetError(), h.told())
	}
	return s
}

func (h *history) failed(code string) *runv1.RunState {
	h.t.Helper()
	s := h.end()
	if s.GetStatus() != runv1.RunStatus_RUN_STATUS_FAILED || s.GetError().GetCode() != code {
		h.t.Fatalf("run %s is %s, %v; want failed with %s\n%s", h.id, s.GetStatus(), s.GetError(), code, h.told())
	}
	return s
}

// told is the end of the history in sentences, each with its time since the first event.
func (h *history) told() string {
	const most = 60
	out := ""
	for _, e := range h.events[max(0, len(h.events)-most):] {
		after := e.GetTime().AsTime().Sub(h.events[0].GetTime().AsTime())
		out += fmt.Sprintf("%d after %s: %s %s\n", e.GetRevision(), after.Round(time.Millisecond), run.EventType(e), run.Explain(e))
	}
	return out
}

// all picks the events that fit.
func (h *history) all(is func(*runv1.Event) bool) []*runv1.Event {
	return slices.DeleteFunc(slices.Clone(h.events), func(e *runv1.Event) bool { return !is(e) })
}

// eventually asks again and again for what no event tells.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// settled waits until no action of the run can be delivered again.
func (h *history) settled() {
	h.t.Helper()
	eventually(h.t, "no action of run "+h.id+" is left in the stream", func() bool {
		stream, err := h.s.js.Stream(h.t.Context(), tool.StreamActions)
		if err != nil {
			return false
		}
		info, err := stream.Info(h.t.Context(), jetstream.WithSubjectFilter("cairn.action."+h.id+".>"))
		return err == nil && len(info.State.Subjects) == 0
	})
}

// did checks how often a step's effect is there, once nothing can add to it.
func (h *history) did(step string, want int) {
	h.t.Helper()
	h.settled()
	if n := len(h.s.effects.of(h.id, step)); n != want {
		h.t.Errorf("run %s: the effect of %s is there %d times, want %d", h.id, step, n, want)
	}
}

func (h *history) answer(request, answer string) {
	h.t.Helper()
	if _, err := h.s.runs.AnswerInput(within(h.t), &apiv1.AnswerInputRequest{RunId: h.id, RequestId: request, Answer: text(answer), By: "ann"}); err != nil {
		h.t.Fatal(err)
	}
}

func step(s *runv1.RunState, id string) *runv1.StepState {
	for _, st := range s.GetSteps() {
		if st.GetStepId() == id {
			return st
		}
	}
	return nil
}

func result(s *runv1.RunState, id string) string {
	return step(s, id).GetResult().GetInline().GetText()
}

// arguments are those of a step's newest action.
func arguments(s *runv1.RunState, id string) string {
	out := ""
	for _, a := range s.GetActions() {
		if a.GetStepId() == id {
			out = a.GetArguments().GetText()
		}
	}
	return out
}

func hasStatus(t *testing.T, s *runv1.RunState, id string, want runv1.StepStatus, reason string) {
	t.Helper()
	st := step(s, id)
	if st.GetStatus() != want || st.GetSkipReason() != reason {
		t.Errorf("step %s is %s (%s), want %s (%s)", id, st.GetStatus(), st.GetSkipReason(), want, reason)
	}
}

func finding(findings []*planv1.Finding, code string) *planv1.Finding {
	for _, f := range findings {
		if f.GetCode() == code {
			return f
		}
	}
	return nil
}

// artifact reads a payload through the gateway.
func (s *system) artifact(t *testing.T, ref *runv1.ArtifactRef) []byte {
	t.Helper()
	stream, err := s.runs.GetArtifact(within(t), &apiv1.GetArtifactRequest{Sha256: ref.GetSha256()})
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m.GetChunk()...)
	}
}
