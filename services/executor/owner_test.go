package executor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// inOrder says whether the wanted things were done, each for the first time after the one before it. "append r" is the
// append of a group with a commit of run r.
func inOrder(done []string, want ...string) bool {
	before := -1
	for _, w := range want {
		at := indexOf(done, w)
		if at <= before {
			return false
		}
		before = at
	}
	return true
}

func is(did, want string) bool {
	run, append := strings.CutPrefix(want, "append ")
	runs, appended := strings.CutPrefix(did, "append ")
	return did == want || append && appended && slices.Contains(strings.Split(runs, ","), run)
}

func indexOf(done []string, want string) int {
	return slices.IndexFunc(done, func(d string) bool { return is(d, want) })
}

func verify(t *testing.T, commits []*runv1.Commit) run.State {
	t.Helper()
	if d := run.Verify(commits); d != nil {
		t.Errorf("the core disagrees with the log: %v", d)
	}
	s, err := run.Replay(commits, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAppendThenWorkThenAnswerThenAck(t *testing.T) {
	s := newStage(t, nil)
	s.journal.gate = make(chan struct{}, 1)
	s.journal.gate <- struct{}{} // for the fence
	a := s.owner(1)
	a.deliver(submit("r1", "chain 2"))
	// Nothing but the append may happen while it is under way; give the owner a repeat of it to judge meanwhile.
	a.deliver(submit("r1", "chain 2"))
	for range 2 {
		s.journal.gate <- struct{}{}
		a.deliver(submit("r2", "chain 2"))
	}
	done := s.has("ack submit:r2")
	if !inOrder(done, "append r1", "publish cairn.work.plan.r1.plan-1", "answer submit:r1", "ack submit:r1") {
		t.Errorf("order of r1:\n%s", strings.Join(done, "\n"))
	}
	if !inOrder(done, "append r2", "publish cairn.work.plan.r2.plan-1", "answer submit:r2", "ack submit:r2") {
		t.Errorf("order of r2:\n%s", strings.Join(done, "\n"))
	}
	if indexOf(done, "ack submit:r1") < indexOf(done, "append r1") {
		t.Errorf("a repeat of what was on its way was acknowledged before the append")
	}
}

func TestRepeatOfSpeculativeStateWaitsForItsGroup(t *testing.T) {
	s := newStage(t, nil)
	s.journal.gate = make(chan struct{}, 10)
	s.journal.gate <- struct{}{}
	a := s.owner(1)
	a.deliver(submit("r1", "chain 1"))
	repeat := submit("r1", "chain 1")
	repeat.Id = "again"
	a.deliver(repeat)
	s.journal.gate <- struct{}{}
	done := s.has("answer again")
	if !inOrder(done, "append r1", "answer again", "ack again") {
		t.Errorf("order:\n%s", strings.Join(done, "\n"))
	}
	if o := s.answer("again").GetOutcome(); o != runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED {
		t.Errorf("outcome %s", o)
	}
	if seq := s.answer("again").GetLogSequence(); seq == 0 {
		t.Error("the answer names no log sequence")
	}
}

func TestCase58_DeposedOwnerDropsThePartition(t *testing.T) {
	s := newStage(t, nil)
	old := s.owner(1)
	old.deliver(submit("r1", "chain 1"))
	s.has("ack submit:r1")
	next := s.owner(2)
	// The old owner's log position is behind the new one's fence.
	old.deliver(submit("r2", "chain 1"))
	if err := old.wait(); !errors.Is(err, eventlog.ErrConflict) {
		t.Fatalf("the deposed owner ended with %v, want ErrConflict", err)
	}
	for _, d := range s.history() {
		if d == "ack submit:r2" && len(s.commits("r2")) == 0 {
			t.Error("the deposed owner acknowledged what is not in the log")
		}
	}
	next.deliver(submit("r3", "chain 1"))
	s.has("ack submit:r3")
	if next.epoch <= old.epoch {
		t.Errorf("epoch %d after %d", next.epoch, old.epoch)
	}
}

func TestFenceFoldsOnAfterConflicts(t *testing.T) {
	s := newStage(t, nil)
	first := s.owner(1)
	n := 0
	s.journal.before = func(int) (error, bool) {
		n++
		if n > 2 {
			return nil, false
		}
		// Another owner gets in between, twice.
		g := &runv1.Group{Number: int64(1 + n), Epoch: int64(10 * n), PreviousHash: lastHash(t, s), Owner: "another"}
		data, err := eventlog.EncodeGroup(g)
		if err != nil {
			t.Fatal(err)
		}
		last, _ := s.journal.Last(t.Context(), 0)
		if _, err := s.journal.Memory.Append(t.Context(), 0, last, data); err != nil {
			t.Fatal(err)
		}
		return nil, false
	}
	a := s.owner(2)
	if a.epoch != 21 {
		t.Errorf("epoch %d, want one more than the newest in the log", a.epoch)
	}
	if a.chain.Number != 4 {
		t.Errorf("group %d, want the fourth", a.chain.Number)
	}
	first.crash()
}

func lastHash(t *testing.T, s *stage) []byte {
	var hash []byte
	if err := s.journal.Read(t.Context(), 0, 0, func(m eventlog.Message) error {
		hash = eventlog.Hash(m.Data)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return hash
}

// Case 43 and 38: whatever the owner dies at, the log alone says how to go on, once.
func TestCase43_KillPoints(t *testing.T) {
	point := errors.New("killed")
	for _, c := range []struct {
		name   string
		before func(n int) (error, bool)
	}{
		{"before the append", func(n int) (error, bool) { return point, false }},
		{"after the append, before its acknowledgement", func(n int) (error, bool) { return point, true }},
		{"after the acknowledgement", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, nil)
			for i, next := range []func(*actor){
				func(a *actor) { a.deliver(submit("r", "chain 3")) },
				func(a *actor) { a.deliver(proposal(t, "r", "chain 3")) },
				func(a *actor) { a.deliver(observed("r", "s0-1")) },
				func(a *actor) { a.deliver(observed("r", "s1-1")) },
				func(a *actor) { a.deliver(observed("r", "s2-1")) },
			} {
				a := s.owner(int64(2*i + 1))
				id := []string{"submit:r", "plan:r", "s0-1:r", "s1-1:r", "s2-1:r"}[i]
				s.journal.mu.Lock()
				s.journal.before = c.before
				s.journal.mu.Unlock()
				next(a)
				if c.before == nil {
					s.has("ack " + id)
					a.crash()
				} else if err := a.wait(); !errors.Is(err, point) {
					t.Fatalf("step %d: %v", i, err)
				}
				s.journal.mu.Lock()
				s.journal.before = nil
				s.journal.mu.Unlock()
				// The next owner gets the report again unless it was acknowledged, and goes on.
				b := s.owner(int64(2*i + 2))
				s.has("ack " + id)
				b.crash()
			}
			commits := s.commits("r")
			state := verify(t, commits)
			if state.Status() != runv1.RunStatus_RUN_STATUS_COMPLETED {
				t.Errorf("the run is %s", state.Status())
			}
			seen := map[string]int{}
			for _, c := range commits {
				for _, e := range c.GetEvents() {
					if o := e.GetObservationRecorded(); o != nil {
						seen[o.GetActionId()]++
					}
				}
			}
			if fmt.Sprint(seen) != "map[s0-1:1 s1-1:1 s2-1:1]" {
				t.Errorf("observations in the log: %v", seen)
			}
		})
	}
}

// Case 38: killed when a step is done and the next one is not dispatched; a take-over publishes what is owed.
func TestCase38_OwedWorkIsPublishedAfterTakeOver(t *testing.T) {
	s := newStage(t, nil)
	a := s.owner(1)
	a.deliver(submit("r", "chain 3"))
	a.deliver(proposal(t, "r", "chain 3"))
	a.deliver(observed("r", "s0-1"))
	s.has("ack s0-1:r")
	a.crash()
	s.mu.Lock()
	s.done, s.works = nil, nil // as if none of it had been sent
	s.mu.Unlock()
	s.owner(2)
	done := s.has("publish cairn.work.call.r.s1-1")
	for _, d := range done {
		if strings.HasPrefix(d, "publish") && d != "publish cairn.work.call.r.s1-1" {
			t.Errorf("done: %s", d)
		}
	}
}

func TestReportsThatWaitComeBeforeOwedWork(t *testing.T) {
	s := newStage(t, nil)
	a := s.owner(1)
	a.deliver(submit("r", "chain 2"))
	a.deliver(proposal(t, "r", "chain 2"))
	s.has("ack plan:r")
	a.crash()
	s.mu.Lock()
	s.done = nil
	s.mu.Unlock()
	// They wait in the stream when the next owner comes, which gets the second one only after it had nothing to do.
	a.deliver(cancelRun("unknown"))
	a.deliver(observed("r", "s0-1"))
	s.few = true
	b := s.owner(2)
	s.has("ack cancel:unknown")
	b.source.letGo()
	done := s.has("publish cairn.work.call.r.s1-1")
	if slices.Contains(done, "publish cairn.work.call.r.s0-1") {
		t.Errorf("a call was sent again whose result was waiting:\n%s", strings.Join(done, "\n"))
	}
}

func TestCase44_ManyObservationsAtOnce(t *testing.T) {
	s := newStage(t, nil)
	a := s.owner(1)
	a.deliver(submit("r", "fan 64"))
	s.has("ack submit:r") // in a group with its plan the run would not ask for one
	a.deliver(proposal(t, "r", "fan 64"))
	s.has("ack plan:r")
	sent := 0
	for sent < 64 {
		// As many as may be under way at once are requested; their results come together.
		s.mu.Lock()
		var next []string
		for _, w := range s.works[1+sent:] {
			next = append(next, w.msg.GetCall().GetActionId())
		}
		s.mu.Unlock()
		for _, id := range next {
			a.deliver(observed("r", id))
		}
		sent += len(next)
		for _, id := range next {
			s.has("ack " + id + ":r")
		}
	}
	commits := s.commits("r")
	state := verify(t, commits)
	if state.Status() != runv1.RunStatus_RUN_STATUS_COMPLETED {
		t.Fatalf("the run is %s", state.Status())
	}
	observations, next := 0, int64(1)
	for _, c := range commits {
		for _, e := range c.GetEvents() {
			if e.GetRevision() != next {
				t.Fatalf("revision %d where %d must come", e.GetRevision(), next)
			}
			next++
			if e.GetObservationRecorded() != nil {
				observations++
			}
		}
	}
	if observations != 64 {
		t.Errorf("%d observations in the log", observations)
	}
}

func TestCase54_OnlyTheNewestAttemptCounts(t *testing.T) {
	s := newStage(t, nil)
	a := s.owner(1)
	a.deliver(submit("r", "chain 1"))
	a.deliver(proposal(t, "r", "chain 1"))
	s.has("ack plan:r")
	a.deliver(observed("r", "s0-2")) // an attempt that was never made
	a.deliver(observed("r", "s0-1"))
	a.deliver(observedAs("r", "s0-1", "late")) // the same result from one who woke up late
	s.has("ack late:r")
	state := verify(t, s.commits("r"))
	if state.Status() != runv1.RunStatus_RUN_STATUS_COMPLETED {
		t.Errorf("the run is %s", state.Status())
	}
	n := 0
	for _, c := range s.commits("r") {
		for _, e := range c.GetEvents() {
			if e.GetObservationRecorded() != nil {
				n++
			}
		}
	}
	if n != 1 {
		t.Errorf("%d observations in the log", n)
	}
	if o := s.answer("s0-2:r").GetOutcome(); o != runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED {
		t.Errorf("an unknown attempt was %s", o)
	}
}

func TestCase51_SubmissionsAreIdempotent(t *testing.T) {
	s := newStage(t, func(c *Config) { c.Linger, c.LingerMax = time.Minute, 1 })
	a := s.owner(1)
	again := func(a *actor, id, goal string) *runv1.Answer {
		t.Helper()
		r := submit("r", goal)
		r.Id = id
		a.deliver(r)
		s.has("ack " + id)
		return s.answer(id)
	}
	is := func(got *runv1.Answer, outcome runv1.AnswerOutcome, code string) {
		t.Helper()
		if got.GetOutcome() != outcome || got.GetCode() != code || got.GetRunId() != "r" {
			t.Errorf("got %v, want %s %s", got, outcome, code)
		}
	}
	accepted, repeated, refused := runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED, runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED, runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED
	for _, id := range []string{"1", "2", "3"} {
		r := submit("r", "chain 1")
		r.Id = id
		a.deliver(r)
	}
	s.has("ack 3")
	is(s.answer("1"), accepted, "")
	is(s.answer("2"), repeated, "")
	is(s.answer("3"), repeated, "")
	is(again(a, "other", "chain 2"), refused, "key_reused")

	a.deliver(proposal(t, "r", "chain 1"))
	a.deliver(observed("r", "s0-1"))
	s.has("ack s0-1:r")
	logged := len(s.commits("r"))
	is(again(a, "after completion", "chain 1"), repeated, "")
	is(again(a, "other after completion", "chain 2"), refused, "key_reused")

	// Another run ends, so that this one is no longer loaded.
	a.deliver(submit("q", "chain 1"))
	a.deliver(proposal(t, "q", "chain 1"))
	a.deliver(observed("q", "s0-1"))
	s.has("ack s0-1:q")
	is(again(a, "when forgotten", "chain 1"), repeated, "")
	is(again(a, "other when forgotten", "chain 2"), refused, "key_reused")
	a.deliver(cancelRun("r"))
	s.has("ack cancel:r")
	is(s.answer("cancel:r"), refused, "run_closed")

	a.crash()
	b := s.owner(2)
	is(again(b, "after restart", "chain 1"), repeated, "")
	is(again(b, "other after restart", "chain 2"), refused, "key_reused")

	close(b.release)
	if err := b.wait(); !errors.Is(err, errReleased) {
		t.Fatal(err)
	}
	c := s.owner(3)
	is(again(c, "from a checkpoint", "chain 1"), repeated, "")
	s.clock.move(23 * time.Hour)
	is(again(c, "23 h later", "chain 1"), repeated, "")
	if n := len(s.commits("r")); n != logged {
		t.Errorf("%d commits, there were %d at its end: what comes after it is not logged", n, logged)
	}
}
