package runstore

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/replay"
	"github.com/cairnrun/cairn/pkg/replay/replaytest"
	"github.com/cairnrun/cairn/pkg/run"
)

// put writes stored commits as groups of their own and returns the last sequence.
func (a *author) put(entries ...*runv1.Entry) (seq uint64) {
	a.tb.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range entries {
		p := a.partition(e.GetRunId())
		chain := &a.chains[p]
		g := &runv1.Group{Partition: int32(p), Epoch: 1, Number: chain.Number + 1, PreviousHash: chain.Hash, Entries: []*runv1.Entry{e}}
		data, err := eventlog.EncodeGroup(g)
		if err != nil {
			a.tb.Fatal(err)
		}
		if seq, err = a.log.Append(context.Background(), p, chain.Sequence, data); err != nil {
			a.tb.Fatal(err)
		}
		chain.Accept(g, eventlog.Message{Sequence: seq, Data: data})
	}
	return seq
}

// Case 15: what the core folded is what a question gets, by the tail as by the database, with every number's text.
func TestCase15_GetRunShowsTheFoldedStateExactly(t *testing.T) {
	for _, from := range []string{"tail", "database"} {
		for _, chunk := range []int{1, 64 << 10} {
			t.Run(fmt.Sprintf("%s, rows of %d bytes", from, chunk), func(t *testing.T) {
				log := eventlog.NewMemory()
				a := newAuthor(t, log, 1)
				c := quiet(t)
				c.ChunkBytes = chunk
				if from == "tail" {
					c.FlushInterval, c.FlushLinger = time.Hour, time.Hour
				}
				s := start(t, c, log, 1)
				d := replaytest.Completed(t, "r1")
				pos := &apiv1.LogPosition{Sequence: a.put(d.Commits...)}
				if from == "database" {
					s.sync(t)
				}
				got, err := s.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: "r1", Position: pos})
				if err != nil {
					t.Fatal(err)
				}
				if !proto.Equal(got.GetRun(), d.State.Snapshot()) {
					t.Fatalf("got %v", got.GetRun())
				}
				if out := got.GetRun().GetSteps()[0].GetResult().GetInline().GetText(); out != replaytest.Exact {
					t.Errorf("result %s", out)
				}
				folded := run.New("r1")
				for _, e := range d.Commits {
					commit, err := eventlog.DecodeCommit(e)
					if err != nil {
						t.Fatal(err)
					}
					for _, ev := range commit.GetEvents() {
						folded = run.Evolve(folded, ev)
						got, err := s.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: "r1", Revision: folded.Revision()})
						if err != nil {
							t.Fatal(err)
						}
						if !proto.Equal(got.GetRun(), folded.Snapshot()) {
							t.Errorf("at %d: %v", folded.Revision(), got.GetRun())
						}
					}
				}
			})
		}
	}
}

func TestGetRunFoldsOnFromWhatItKeptAndFromSnapshots(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	c := quiet(t)
	c.StateCache = 1
	s := start(t, c, log, 1)
	d, other := replaytest.New(t, "r1"), replaytest.New(t, "r2")
	other.Submit("another")
	a.put(other.Commits...)
	stored := 0
	check := func() {
		t.Helper()
		pos := &apiv1.LogPosition{Sequence: a.put(d.Commits[stored:]...)}
		stored = len(d.Commits)
		for range 2 {
			got, err := s.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: "r1", Position: pos})
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(got.GetRun(), d.State.Snapshot()) {
				t.Fatalf("got %v", got.GetRun())
			}
		}
		// With room for one, this one drives the other out.
		if _, err := s.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: "r2"}); err != nil {
			t.Fatal(err)
		}
	}
	d.Submit("g")
	check()
	d.Plan("a", "b")
	check()
	d.Snapshot()
	check()
	s.sync(t)
	d.Result("a", replaytest.Exact)
	check()
	d.Snapshot()
	d.Result("b", "1")
	s.sync(t)
	check()
	if n := s.states.order.Len(); n != 1 {
		t.Fatalf("%d states kept", n)
	}
}

func TestKeptStatesAreBoundedByBytes(t *testing.T) {
	c := newStates(nil, 10, 100)
	for i, want := range []int{1, 2, 2, 1, 0} {
		size := []int{50, 50, 1, 100, 101}[i]
		c.keep(folded{state: run.New(fmt.Sprintf("r%d", i)), bytes: size})
		if c.order.Len() != want {
			t.Errorf("after %d: %d states, want %d", i, c.order.Len(), want)
		}
	}
}

func TestExportIsWhatTheLogHolds(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	d := replaytest.New(t, "r1")
	d.Submit("g")
	d.Plan("a")
	d.Snapshot()
	d.Result("a", `"`+strings.Repeat("x", 50_000)+`"`)
	a.put(d.Commits[:2]...)
	s.sync(t)
	seq := a.put(d.Commits[2:]...)
	if err := s.tail.waitSeen(t.Context(), 0, seq); err != nil {
		t.Fatal(err)
	}
	client := dial(t, s)
	stream, err := client.ExportRun(t.Context(), &apiv1.ExportRunRequest{RunId: "r1"})
	if err != nil {
		t.Fatal(err)
	}
	var file strings.Builder
	for i := 0; ; i++ {
		m, err := stream.Recv()
		if err != nil {
			break
		}
		if string(m.GetStored()) != string(d.Commits[i].GetCommit()) || m.GetPosition().GetSequence() != uint64(i+1) {
			t.Errorf("commit %d is another", i)
		}
		if err := replay.Write(&file, m); err != nil {
			t.Fatal(err)
		}
	}
	records, err := replay.Read(strings.NewReader(file.String()))
	if err != nil || len(records) != len(d.Commits) {
		t.Fatalf("%d commits, %v", len(records), err)
	}
	here, err := replay.Replay(records, replay.Options{Verify: true})
	if err != nil || here.GetDifference() != nil {
		t.Fatalf("%v, %v", here.GetDifference(), err)
	}
	there, err := client.ReplayRun(t.Context(), &apiv1.ReplayRunRequest{RunId: "r1", Verify: true})
	if err != nil || !proto.Equal(here, there) {
		t.Fatalf("the file gives %v\nthe service %v, %v", here, there, err)
	}
}

// dial serves the questions of a projection over gRPC.
func dial(t *testing.T, s *started) apiv1.QueryServiceClient {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := newServer(s.queries.config, health.NewServer())
	srv.open(s.queries)
	go func() { _ = srv.grpc.Serve(lis) }()
	t.Cleanup(srv.grpc.Stop)
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return apiv1.NewQueryServiceClient(conn)
}

func TestExplainFollowsCausesBackToAReport(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	d := replaytest.Completed(t, "r1")
	seq := a.put(d.Commits...)
	if err := s.tail.waitSeen(t.Context(), 0, seq); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		ask   *apiv1.ExplainRunRequest
		first func(*runv1.Event) bool
	}{
		"the end":  {&apiv1.ExplainRunRequest{}, func(e *runv1.Event) bool { return e.GetRunCompleted() != nil }},
		"a step":   {&apiv1.ExplainRunRequest{StepId: "a"}, func(e *runv1.Event) bool { return e.GetStepSucceeded().GetStepId() == "a" }},
		"an event": {&apiv1.ExplainRunRequest{Revision: 2}, func(e *runv1.Event) bool { return e.GetPlanRequested() != nil && e.GetRevision() == 2 }},
		"an event of a step": {&apiv1.ExplainRunRequest{StepId: "a", Revision: 4}, func(e *runv1.Event) bool {
			return e.GetActionRequested().GetStepId() == "a"
		}},
	} {
		tc.ask.RunId = "r1"
		got, err := s.ExplainRun(t.Context(), tc.ask)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		chain := got.GetChain()
		if !tc.first(chain[0].GetEvent()) {
			t.Errorf("%s: begins with %v", name, chain[0].GetEvent())
		}
		for i, r := range chain {
			if r.GetText() == "" || r.GetText() != run.Explain(r.GetEvent()) {
				t.Errorf("%s: link %d says %q", name, i, r.GetText())
			}
			if i == 0 {
				continue
			}
			before := chain[i-1].GetEvent()
			caused := r.GetEvent().GetRevision() == before.GetCause().GetRevision()
			asked := before.GetKind() == runv1.EventKind_EVENT_KIND_RECORDED && requestOf(before) != "" && requestOf(before) == requestOf(r.GetEvent())
			if !caused && !asked {
				t.Errorf("%s: link %d neither caused the one before nor asked for it", name, i)
			}
		}
		if last := chain[len(chain)-1].GetEvent(); last.GetRunSubmitted() == nil || last.GetCause().GetReportId() == "" {
			t.Errorf("%s: ends with %v", name, last)
		}
	}
	s.queries.config.MaxChain = 2
	if got, err := s.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{RunId: "r1"}); err != nil || len(got.GetChain()) != 2 {
		t.Errorf("chain at its limit: %d, %v", len(got.GetChain()), err)
	}
}

func TestAnEventOfANewerVersionIsSaidAndNotGuessed(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	d := replaytest.New(t, "r1")
	d.Submit("g")
	seq := a.put(d.Commits...)
	c := &runv1.Commit{RunId: "r1", Events: []*runv1.Event{{Revision: d.State.Revision() + 1}}, Status: runv1.RunStatus_RUN_STATUS_RUNNING}
	e, err := eventlog.EncodeCommit(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	seq = max(seq, a.put(e))
	_, err = s.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: "r1", Position: &apiv1.LogPosition{Sequence: seq}})
	if status.Code(err) != codes.FailedPrecondition || reasonOf(err) != reasonUnknownEventType {
		t.Fatalf("got %v", err)
	}
	if _, err := s.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: "r1", Revision: d.State.Revision()}); err != nil {
		t.Fatalf("before it: %v", err)
	}
}

// A panic in one question is an answer, not the end of the service.
func TestAPanicIsAnAnswer(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	seq := a.say("r1", submitted("g"))
	s.sync(t)
	client := dial(t, s)
	s.queries.states.history = nil
	if _, err := client.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: "r1"}); status.Code(err) != codes.Internal || reasonOf(err) != reasonInternal {
		t.Fatalf("got %v", err)
	}
	if _, err := client.ListEvents(t.Context(), &apiv1.ListEventsRequest{RunId: "r1", Position: &apiv1.LogPosition{Sequence: seq}}); err != nil {
		t.Fatal(err)
	}
}

func TestAPatchedRunIsFoundByItsTools(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	a.say("r1", submitted("g"))
	a.say("r1", planned("z"))
	s.sync(t)
	a.say("r1", &runv1.Event{Body: &runv1.Event_PlanPatched{PlanPatched: &runv1.PlanPatched{Version: 2, Patch: &planv1.Patch{
		Add:    []*planv1.Step{{Id: "x", Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_LLM, Name: "generate"}}},
		Update: []*planv1.Step{{Id: "y", Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: "a"}}},
	}}}})
	s.sync(t)
	page, err := s.ListRuns(t.Context(), &apiv1.ListRunsRequest{Filter: "tool=llm.generate AND tool=z AND tool=a"})
	if err != nil || len(page.GetRuns()) != 1 || fmt.Sprint(page.GetRuns()[0].GetTools()) != "[a llm.generate z]" || page.GetRuns()[0].GetPlanVersion() != 2 {
		t.Fatalf("%v, %v", page, err)
	}
}
