package executor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func TestAPanicQuarantinesItsRunOnly(t *testing.T) {
	s := newStage(t, nil)
	s.tune = func(o *owner) {
		o.core.advance = func(st run.State, r *runv1.Report, now time.Time) run.Step {
			if r.GetRunId() == "bad" && r.GetPlanProposed() != nil {
				panic("a fault of the core")
			}
			return run.Advance(st, r, now)
		}
	}
	a := s.owner(1)
	a.deliver(submit("bad", "chain 1"))
	a.deliver(proposal(t, "bad", "chain 1"))
	end(t, a, "good")
	s.has("ack plan:bad")
	if code := s.answer("plan:bad").GetCode(); code != codeQuarantined {
		t.Errorf("the sender is told %q", code)
	}
	commits := s.commits("bad")
	last := commits[len(commits)-1]
	q := last.GetEvents()[len(last.GetEvents())-1].GetRunQuarantined()
	if q == nil || !strings.Contains(q.GetReason(), "a fault of the core") || q.GetReportId() != "plan:bad" {
		t.Fatalf("the log holds %v", last)
	}
	if s.commits("bad")[0].GetEvents()[0].GetRunSubmitted() == nil {
		t.Error("what came before the panic is not there")
	}
	a.deliver(cancelRun("bad"))
	s.has("ack cancel:bad")
	if o := s.answer("cancel:bad").GetOutcome(); o != runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED {
		t.Errorf("cancel of a quarantined run: %s", o)
	}
	verify(t, s.commits("bad"))
}

func TestARunWithAnUnknownEventIsHeldBack(t *testing.T) {
	s := newStage(t, nil)
	a := s.owner(1)
	a.deliver(submit("new", "chain 1"))
	a.deliver(submit("old", "chain 1"))
	s.has("ack submit:old")
	a.crash()
	// A newer executor writes an event that this one does not know.
	commits := s.commits("new")
	stored, err := eventlog.EncodeCommit(commits[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	next := &runv1.Commit{RunId: "new", Tenant: "t", Time: timestamppb.Now(), RulesVersion: "99", PreviousHash: eventlog.Hash(stored.GetCommit())}
	e := &runv1.Event{Revision: 3, Kind: runv1.EventKind_EVENT_KIND_DECIDED}
	e.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 900, protowire.BytesType), []byte("news")))
	next.Events = append(next.Events, e)
	entry, err := eventlog.EncodeCommit(next, 3)
	if err != nil {
		t.Fatal(err)
	}
	g := &runv1.Group{Number: a.chain.Number + 1, Epoch: a.chain.Epoch, PreviousHash: a.chain.Hash, Entries: []*runv1.Entry{entry}}
	data, err := eventlog.EncodeGroup(g)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.journal.Memory.Append(t.Context(), 0, a.chain.Sequence, data); err != nil {
		t.Fatal(err)
	}

	b := s.owner(2)
	b.deliver(proposal(t, "new", "chain 1"))
	b.deliver(proposal(t, "old", "chain 1"))
	done := s.has("ack plan:old")
	if !slices.Contains(done, "nak plan:new") || slices.Contains(done, "ack plan:new") {
		t.Errorf("the held run's report:\n%s", strings.Join(done, "\n"))
	}
	if n := len(s.commits("new")); n != 2 {
		t.Errorf("%d commits of the held run", n)
	}
}

func TestSweepResendsOnlyWhatNobodyHas(t *testing.T) {
	s := newStage(t, nil)
	a := s.owner(1)
	a.deliver(wide("r", 3))
	a.deliver(proposal(t, "r", "fan 3"))
	s.has("ack plan:r")
	a.crash()
	if a.sweeping {
		<-a.missing // what take-over looked for
	}
	a.recovered, a.sweeping = true, false
	s.held["cairn.work.call.r.s0-1"] = true
	resent := func(idle time.Duration) (out []string) {
		s.mu.Lock()
		s.works = nil
		s.mu.Unlock()
		a.sweep(idle)
		if !a.sweeping {
			return nil
		}
		a.resend(<-a.missing)
		for _, w := range s.works {
			out = append(out, w.subject)
		}
		slices.Sort(out)
		return out
	}
	if got := resent(time.Minute); got != nil {
		t.Errorf("before anything was idle for long: %v", got)
	}
	s.clock.move(time.Minute)
	if got := fmt.Sprint(resent(time.Minute)); got != "[cairn.work.call.r.s1-1 cairn.work.call.r.s2-1]" {
		t.Errorf("sent again: %v", got)
	}
	if got := resent(time.Minute); got != nil {
		t.Errorf("sent again at once: %v", got)
	}
}

func TestTimersFireAndCommitTimeNeverGoesBack(t *testing.T) {
	s := newStage(t, nil)
	a := s.owner(1)
	a.deliver(submit("r", "chain 1"))
	p := proposal(t, "r", "chain 1")
	p.GetPlanProposed().Plan.Steps = []*planv1.Step{{
		Id: "w", Title: "wait", Objective: "wait",
		Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_CONTROL, Name: "wait", Arguments: &planv1.JsonText{Text: `{"duration":"1h"}`}},
	}}
	p.GetPlanProposed().Tools = nil
	a.deliver(p)
	s.has("ack plan:r")
	started := s.clock.Now()
	last := s.commits("r")[len(s.commits("r"))-1]
	if last.GetPhase() == runv1.RunPhase_RUN_PHASE_ENDED {
		t.Fatalf("the run ended: %v", last)
	}
	a.crash()
	// The next owner's clock is an hour behind: the hour counts from the commit, on its own clock.
	s.clock.move(-time.Hour)
	s.owner(2)
	s.clock.move(59 * time.Minute)
	s.clock.move(2 * time.Minute)
	s.until("the timer", func([]string) bool {
		c := s.commits("r")
		return c[len(c)-1].GetPhase() == runv1.RunPhase_RUN_PHASE_ENDED
	})
	commits := s.commits("r")
	verify(t, commits)
	before := time.Time{}
	for _, c := range commits {
		if at := c.GetTime().AsTime(); at.Before(before) {
			t.Errorf("commit time %s after %s", at, before)
		} else {
			before = at
		}
	}
	if due := started.Add(time.Hour); before.Before(due) {
		t.Errorf("the timer's commit is of %s, before it was due at %s", before, due)
	}
}

func TestLeadAndDue(t *testing.T) {
	own := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name     string
		last     time.Duration // of the commit, against the own clock
		deadline time.Duration // after that commit
		absolute bool
		due      time.Duration // on the own clock
	}{
		{"clock in step", 0, time.Minute, false, time.Minute},
		{"commit of a clock ahead", time.Hour, time.Minute, false, time.Minute},
		{"commit long ago", -time.Hour, time.Minute, false, -59 * time.Minute},
		{"absolute, clock ahead", time.Hour, time.Minute, true, time.Hour + time.Minute},
	} {
		last := own.Add(c.last)
		got := dueOn(run.Deadline{At: last.Add(c.deadline), Absolute: c.absolute}, lead(last, own))
		if !got.Equal(own.Add(c.due)) {
			t.Errorf("%s: due at %s, want %s", c.name, got, own.Add(c.due))
		}
	}
}

func TestALostLeaseDropsThePartition(t *testing.T) {
	s := newStage(t, nil)
	s.journal.gate = make(chan struct{}, 10)
	s.journal.gate <- struct{}{}
	a := s.owner(1)
	a.deliver(submit("r", "chain 1"))
	close(a.lease.lost)
	if err := a.wait(); !errors.Is(err, errLeaseLost) {
		t.Fatalf("it ended with %v", err)
	}
	for _, d := range s.history() {
		if strings.HasPrefix(d, "ack") || strings.HasPrefix(d, "publish") {
			t.Errorf("done without a lease: %s", d)
		}
	}
}

func TestReleaseFinishesWhatIsUnderWay(t *testing.T) {
	s := newStage(t, nil)
	s.journal.gate = make(chan struct{}, 10)
	s.journal.gate <- struct{}{}
	a := s.owner(1)
	a.deliver(submit("r", "chain 1"))
	s.journal.gate <- struct{}{}
	s.has("ack submit:r")
	a.deliver(proposal(t, "r", "chain 1"))
	close(a.release)
	s.journal.gate <- struct{}{}
	if err := a.wait(); !errors.Is(err, errReleased) {
		t.Fatalf("it ended with %v", err)
	}
	for _, d := range s.history() {
		if d == "append r" {
			break
		}
		if d == "ack plan:r" {
			t.Error("acknowledged before it was in the log")
		}
	}
}
