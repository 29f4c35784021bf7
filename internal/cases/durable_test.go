package cases

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cairnrun/cairn/internal/dev"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

func ask(id, needs string) string {
	return fmt.Sprintf(`{"id":%q,"action":{"kind":"control","name":"user.ask","arguments":{"question":"approve %s?"}},"depends_on":[%q]}`, id, id, needs)
}

// openInput is the request that a step waits for.
func openInput(t *testing.T, s *runv1.RunState, id string) string {
	t.Helper()
	for _, in := range s.GetInputs() {
		if in.GetOpen() && in.GetStepId() == id {
			return in.GetRequestId()
		}
	}
	t.Fatalf("%s asks nothing", id)
	return ""
}

// Two gates and a confirmation with restarts of everything between them: nothing is done or asked twice.
func TestCase31_ResumeRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := ownSystem(t)
	h := s.plan(t, `{"goal":"g","steps":[{"id":"s1","tool":"add","arguments":{}},`+ask("g1", "s1")+","+ask("g2", "s1")+`,
		{"id":"s2","tool":"add","arguments":{},"confirm":true,"depends_on":["g1","g2"]}]}`)
	h.until(asked("g2"))
	h.answer(openInput(t, h.state.Snapshot(), "g1"), "true")
	h.until(func(e *runv1.Event) bool { return e.GetStepSucceeded().GetStepId() == "g1" })
	s.restart(t, nil)
	h = s.watch(t, h.id, nil)
	h.until(func(e *runv1.Event) bool { return e.GetStepSucceeded().GetStepId() == "g1" })
	h.answer(openInput(t, h.state.Snapshot(), "g2"), "true")
	h.until(asked("s2"))
	s.restart(t, nil)
	h = s.watch(t, h.id, nil)
	h.until(asked("s2"))
	h.answer(openInput(t, h.state.Snapshot(), "s2"), `{"approved":true}`)
	h.completed()
	h.did("s1", 1)
	h.did("s2", 1)
	for _, id := range []string{"g1", "g2", "s2"} {
		if n := len(h.all(asked(id))); n != 1 {
			t.Errorf("%s was asked %d times", id, n)
		}
	}
}

// logged reads the log itself and says whether it holds an event of a run.
func (s *system) logged(t *testing.T, id string, revision int64) bool {
	t.Helper()
	log, err := eventlog.NewNATS(within(t), s.js, eventlog.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	n, err := bus.Partitions(within(t), s.js)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for p := range n {
		err := log.Read(within(t), p, 0, func(m eventlog.Message) error {
			g, err := eventlog.DecodeGroup(m.Data)
			for _, e := range g.GetEntries() {
				found = found || e.GetRunId() == id && e.GetFirstRevision() <= revision && revision <= e.GetLastRevision()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// What a client sees of a pause is in the log, and stays so: after a restart it can be approved. The same when the run
// store had none of it in its database.
func TestCase33_APauseIsSeenWhenItIsInTheLog(t *testing.T) {
	t.Parallel()
	s := ownSystem(t)
	h := s.plan(t, `{"goal":"g","steps":[{"id":"s1","tool":"add","arguments":{}},`+ask("g1", "s1")+`,{"id":"s2","tool":"add","arguments":{},"depends_on":["g1"]}]}`)
	e := h.until(asked("g1"))
	if !s.logged(t, h.id, e.GetRevision()) {
		t.Errorf("revision %d was shown and is not in the log", e.GetRevision())
	}
	s.restart(t, func() { s.forget(t) })
	h = s.watch(t, h.id, nil)
	again := h.until(asked("g1"))
	if again.GetRevision() != e.GetRevision() || again.GetUserInputRequested().GetRequestId() != e.GetUserInputRequested().GetRequestId() {
		t.Errorf("asked at revision %d, before at %d", again.GetRevision(), e.GetRevision())
	}
	h.answer(e.GetUserInputRequested().GetRequestId(), "true")
	h.completed()
	h.did("s1", 1)
	h.did("s2", 1)
}

// forget removes the run store's database while nothing runs.
func (s *system) forget(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "runs.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no database in %s: %v", s.dir, err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
}

// Everything stops after a step's success is in the log and before the next action reaches a tool, with its work published
// or lost: it is dispatched after the restart, and the next run follows.
func TestCase38_StopBetweenTwoSteps(t *testing.T) {
	t.Parallel()
	s := ownSystem(t)
	one := &runv1.RunLimits{MaxParallel: 1}
	doc := `{"goal":"g","steps":[{"id":"a","tool":"add","arguments":{}},` + ask("b", "a") + `,{"id":"c","tool":"add","arguments":{},"depends_on":["b"]}]}`
	kept := s.submit(t, &runv1.RunSpec{Plan: text(doc), Limits: one})
	lost := s.submit(t, &runv1.RunSpec{Plan: text(doc), Limits: one})
	kept.until(asked("b"))
	lost.until(asked("b"))
	s.restart(t, nil, dev.ToolRouter)
	var next *history
	for _, h := range []**history{&kept, &lost} {
		*h = s.watch(t, (*h).id, nil)
		(*h).until(asked("b"))
		(*h).answer("input-1", "true")
		(*h).until(requested("c"))
	}
	next = s.submit(t, &runv1.RunSpec{Plan: text(`{"goal":"g","steps":[{"id":"d","tool":"add","arguments":{}}]}`), Limits: one})
	next.until(requested("d"))
	work, err := s.js.Stream(within(t), bus.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	// The work is published after the event is in the log; here it is lost again.
	gone := bus.CallSubject(lost.id, "c-1")
	eventually(t, "the work of c is published", func() bool {
		m, err := work.GetLastMsgForSubject(t.Context(), gone)
		return err == nil && work.DeleteMsg(t.Context(), m.Sequence) == nil
	})
	s.restart(t, nil)
	begun := time.Now()
	for _, h := range []*history{kept, lost, next} {
		h = s.watch(t, h.id, nil)
		h.completed()
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("run %s went on only after %s", h.id, took)
		}
		for _, id := range []string{"a", "c", "d"} {
			if step(h.state.Snapshot(), id) != nil {
				h.did(id, 1)
			}
		}
	}
}

// What the run store shows comes from the log alone: with its database gone it is the same again, and open runs go on.
func TestCase43_TheProjectionIsRebuiltFromTheLog(t *testing.T) {
	t.Parallel()
	s := ownSystem(t)
	doc := `{"goal":"g","steps":[{"id":"a","tool":"add","arguments":{"n":9011.00}},` + ask("b", "a") + `,{"id":"c","tool":"add","arguments":{},"depends_on":["b"]}]}`
	ended, open := s.plan(t, doc), s.plan(t, doc)
	ended.until(asked("b"))
	ended.answer("input-1", "true")
	ended.completed()
	open.until(asked("b"))
	shown := func() (string, string) {
		var states, list string
		for _, h := range []*history{ended, open} {
			got, err := s.query.GetRun(within(t), &apiv1.GetRunRequest{RunId: h.id})
			if err != nil {
				t.Fatal(err)
			}
			body, err := exactjson.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			states += string(body) + "\n"
			// A list is read from the database: ask for it as far as the run has come.
			position := s.position(t, h.id)
			runs, err := s.query.ListRuns(within(t), &apiv1.ListRunsRequest{Position: position})
			if err != nil {
				t.Fatal(err)
			}
			if body, err = exactjson.Marshal(runs); err != nil {
				t.Fatal(err)
			}
			list = string(body)
		}
		return states, list
	}
	states, list := shown()
	s.restart(t, func() { s.forget(t) })
	if after, again := shown(); after != states || again != list {
		t.Errorf("shown before:\n%s%s\nafter:\n%s%s", states, list, after, again)
	}
	open = s.watch(t, open.id, nil)
	open.until(asked("b"))
	open.answer("input-1", "true")
	open.completed()
	for _, h := range []*history{ended, open} {
		h.s = s
		h.did("a", 1)
		h.did("c", 1)
	}
}

// position is where the log holds the newest commit of a run.
func (s *system) position(t *testing.T, id string) *apiv1.LogPosition {
	t.Helper()
	stream, err := s.query.ExportRun(within(t), &apiv1.ExportRunRequest{RunId: id})
	if err != nil {
		t.Fatal(err)
	}
	var last *apiv1.LogPosition
	for {
		m, err := stream.Recv()
		if err != nil {
			return last
		}
		last = m.GetPosition()
	}
}

// One request id is one run: at the same time, after its end, after a restart. Another body under it is a conflict.
func TestCase51_OneRequestIsOneRun(t *testing.T) {
	t.Parallel()
	s := ownSystem(t)
	request := func(n int) *apiv1.SubmitRunRequest {
		return &apiv1.SubmitRunRequest{RequestId: "order-7", Spec: &runv1.RunSpec{Plan: text(fmt.Sprintf(`{"goal":"g","steps":[{"id":"a","tool":"add","arguments":{"n":%d}}]}`, n))}}
	}
	var mu sync.Mutex
	made, ids := 0, map[string]bool{}
	submit := func() *apiv1.SubmitRunResponse {
		got, err := s.runs.SubmitRun(within(t), request(1))
		if err != nil {
			t.Error(err)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		ids[got.GetRunId()] = true
		if got.GetCreated() {
			made++
		}
		return got
	}
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() { submit() })
	}
	wait.Wait()
	first := submit()
	h := s.watch(t, first.GetRunId(), first.GetPosition())
	h.completed()
	submit()
	other := func() {
		_, err := s.runs.SubmitRun(within(t), request(2))
		if status.Code(err) != codes.AlreadyExists {
			t.Errorf("another body: %v", err)
		}
		resp, err := http.Post("http://"+s.dev.Gateway()+"/v1/runs", "application/json", strings.NewReader(`{"request_id":"order-7","spec":{"goal":"another"}}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusConflict {
			t.Errorf("another body over HTTP: %s", resp.Status)
		}
	}
	other()
	s.restart(t, nil)
	submit()
	other()
	if made != 1 || len(ids) != 1 {
		t.Errorf("%d runs were made, ids %v", made, ids)
	}
	h.did("a", 1)
}
