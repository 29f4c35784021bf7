package executor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/bench/responder"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// groupSizes are the numbers of commits in the groups of the log that have some.
func groupSizes(t *testing.T, s *stage) (sizes []int) {
	t.Helper()
	chain := eventlog.Chain{}
	if err := s.journal.Read(t.Context(), 0, 0, func(m eventlog.Message) error {
		g, err := chain.Next(m)
		if err == nil && len(g.GetEntries()) > 0 {
			sizes = append(sizes, len(g.GetEntries()))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return sizes
}

func TestGroupsEndAtTheirLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		tune   func(*Config)
		runs   int
		groups int
	}{
		{"reports, at the limit", func(c *Config) { c.GroupMaxReports = 5 }, 5, 1},
		{"reports, one more", func(c *Config) { c.GroupMaxReports = 5 }, 6, 2},
		{"bytes, far below", func(c *Config) { c.GroupMaxBytes = 1 << 20 }, 20, 1},
		{"bytes, below one commit", func(c *Config) { c.GroupMaxBytes = 1 }, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, c.tune)
			s.journal.gate = make(chan struct{}, 100)
			s.journal.gate <- struct{}{}
			a := s.owner(1)
			a.deliver(submit("first", "chain 1"))
			s.journal.gate <- struct{}{}
			s.has("ack submit:first")
			// All of these are there before the next append may go on.
			a.source.hold()
			for i := range c.runs {
				a.deliver(submit(fmt.Sprintf("r%d", i), "chain 1"))
			}
			a.source.letGo()
			for range c.groups {
				s.journal.gate <- struct{}{}
			}
			s.has(fmt.Sprintf("ack submit:r%d", c.runs-1))
			sizes := groupSizes(t, s)[1:]
			if len(sizes) != c.groups {
				t.Errorf("groups of %v, want %d groups", sizes, c.groups)
			}
		})
	}
}

func TestABusyOwnerLetsGroupsFill(t *testing.T) {
	s := newStage(t, func(c *Config) { c.GroupLinger = time.Hour })
	a := s.owner(1)
	next := 0
	deliver := func(n int) {
		a.source.hold()
		for range n {
			a.deliver(submit(fmt.Sprintf("r%d", next), "chain 1"))
			next++
		}
		a.source.letGo()
	}
	// With little to do nothing waits.
	for range 2 {
		deliver(busyGroup - 1)
		s.has(fmt.Sprintf("ack submit:r%d", next-1))
	}
	deliver(busyGroup)
	s.has(fmt.Sprintf("ack submit:r%d", next-1))
	// Now it has much to do: a group waits until it is four times as large as the last one, or for the end of its time.
	deliver(3 * busyGroup)
	deliver(busyGroup)
	s.has(fmt.Sprintf("ack submit:r%d", next-1))
	deliver(1)
	close(a.release) // or for the end of the owner
	if err := a.wait(); !errors.Is(err, errReleased) {
		t.Fatal(err)
	}
	sizes := groupSizes(t, s)
	want := []int{busyGroup - 1, busyGroup - 1, busyGroup, 4 * busyGroup}
	if len(sizes) < 4 || !slices.Equal(sizes[:4], want) {
		t.Errorf("groups of %v, want %v and perhaps the last one", sizes, want)
	}
}

func TestLargeGroupsAreSplitIntoMessages(t *testing.T) {
	s := newStage(t, nil)
	s.tune = func(o *owner) { o.maxMessage = 600 } // about two commits
	s.journal.gate = make(chan struct{}, 100)
	s.journal.gate <- struct{}{}
	a := s.owner(1)
	a.source.hold()
	for i := range 7 {
		a.deliver(submit(fmt.Sprintf("r%d", i), "chain 1"))
	}
	a.source.letGo()
	for range 20 {
		s.journal.gate <- struct{}{}
	}
	done := s.has("ack submit:r6")
	if sizes := groupSizes(t, s); len(sizes) < 3 {
		t.Errorf("groups of %v, want several", sizes)
	}
	// What a group causes comes after its last message.
	last := 0
	for i, d := range done {
		if strings.HasPrefix(d, "append") {
			last = i
		}
	}
	for i, d := range done {
		if (strings.HasPrefix(d, "publish") || strings.HasPrefix(d, "ack")) && i < last {
			t.Errorf("%s before the group's last message", d)
		}
	}
	for i := range 7 {
		verify(t, s.commits(fmt.Sprintf("r%d", i)))
	}
}

// wide asks for more at once than one commit holds.
func wide(id string, steps int) *runv1.Report {
	r := submit(id, fmt.Sprintf("fan %d", steps))
	r.GetSubmitRun().Spec.Limits = &runv1.RunLimits{MaxParallel: 1000, MaxSteps: 1000}
	return r
}

func TestCommitsEndAtTheirLimitAndGoOn(t *testing.T) {
	s := newStage(t, nil)
	a := s.owner(1)
	a.deliver(wide("r", 600))
	a.deliver(proposal(t, "r", "fan 600"))
	a.deliver(submit("q", "chain 1"))
	s.has("ack plan:r")
	commits := s.commits("r")
	if len(commits) < 3 {
		t.Fatalf("%d commits for 600 actions", len(commits))
	}
	for i, c := range commits {
		if n := len(c.GetEvents()); n > run.CommitEvents {
			t.Errorf("commit %d has %d events", i, n)
		}
		if last := i == len(commits)-1; c.GetMore() == last && i > 0 {
			t.Errorf("commit %d of %d says more: %v", i+1, len(commits), c.GetMore())
		}
	}
	verify(t, commits)
	s.has("publish cairn.work.call.r.s599-1")
	// A report that comes while the run is not done deciding is judged after it.
	a.deliver(observed("r", "s599-1"))
	s.has("ack s599-1:r")
	verify(t, s.commits("r"))
}

func TestAKilledOwnersCommitsGoOnAtTakeOver(t *testing.T) {
	s := newStage(t, func(c *Config) { c.GroupMaxBytes = 1 }) // a group for each commit
	killed := errors.New("killed")
	a := s.owner(1)
	a.deliver(wide("r", 600))
	s.has("ack submit:r")
	s.journal.mu.Lock()
	first := s.journal.n
	s.journal.before = func(n int) (error, bool) {
		if n > first+1 {
			return killed, false
		}
		return nil, false
	}
	s.journal.mu.Unlock()
	a.deliver(proposal(t, "r", "fan 600"))
	if err := a.wait(); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	commits := s.commits("r")
	if !commits[len(commits)-1].GetMore() {
		t.Fatal("the kill did not come in the midst of deciding")
	}
	s.journal.mu.Lock()
	s.journal.before = nil
	s.journal.mu.Unlock()
	s.owner(2)
	s.has("publish cairn.work.call.r.s599-1")
	commits = s.commits("r")
	verify(t, commits)
	if commits[len(commits)-1].GetMore() {
		t.Error("it did not go on to the end")
	}
}

func TestSnapshotsAreWritten(t *testing.T) {
	s := newStage(t, func(c *Config) { c.SnapshotEvery = 10 })
	a := s.owner(1)
	a.deliver(submit("r", "chain 8"))
	a.deliver(proposal(t, "r", "chain 8"))
	for i := range 8 {
		a.deliver(observed("r", fmt.Sprintf("s%d-1", i)))
		s.has(fmt.Sprintf("ack s%d-1:r", i))
	}
	commits := s.commits("r")
	newest, snapshots := int64(0), 0
	for _, c := range commits {
		last := c.GetEvents()[len(c.GetEvents())-1].GetRevision()
		if c.GetSnapshot() != nil {
			snapshots++
			newest = last
			if c.GetSnapshot().GetRevision() != last {
				t.Errorf("snapshot at %d in a commit that ends at %d", c.GetSnapshot().GetRevision(), last)
			}
		} else if last-newest >= 10 {
			t.Errorf("no snapshot between revisions %d and %d", newest, last)
		}
	}
	if snapshots == 0 {
		t.Error("no snapshot")
	}
	verify(t, commits)
}

func end(t *testing.T, a *actor, id string) {
	t.Helper()
	a.deliver(submit(id, "chain 1"))
	a.deliver(proposal(t, id, "chain 1"))
	a.deliver(observed(id, "s0-1"))
	a.stage.has("ack s0-1:" + id)
}

func TestEndedRunsAreRememberedUpToTheirNumber(t *testing.T) {
	s := newStage(t, func(c *Config) { c.EndedMax, c.LingerMax = 2, 1 })
	a := s.owner(1)
	for _, id := range []string{"e1", "e2", "e3"} {
		end(t, a, id)
	}
	asked := 0
	again := func(id string) runv1.AnswerOutcome {
		asked++
		r := submit(id, "chain 1")
		r.Id = fmt.Sprintf("again %d", asked)
		a.deliver(r)
		s.has("ack " + r.GetId())
		return s.answer(r.GetId()).GetOutcome()
	}
	// One is loaded, two are remembered: none is lost yet.
	if o := again("e1"); o != runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED {
		t.Errorf("at the limit: %s", o)
	}
	end(t, a, "e4")
	if o := again("e2"); o != runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED {
		t.Errorf("second: %s", o)
	}
	if o := again("e1"); o != runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED {
		t.Errorf("one over the limit: %s", o)
	}
}

func TestEndedRunsAreRememberedForTheirTime(t *testing.T) {
	s := newStage(t, func(c *Config) { c.EndedRetention, c.Linger = time.Hour, time.Minute })
	a := s.owner(1)
	end(t, a, "e1")
	s.clock.move(2 * time.Minute)
	house := func() { a.keepHouse() }
	a.crash() // from here on the test drives the owner
	house()
	if a.owner.ended.byID["e1"] == nil || a.linger.runs.Len() != 0 {
		t.Fatal("the run is not remembered by its end alone")
	}
	s.clock.move(58 * time.Minute)
	house()
	if a.owner.ended.byID["e1"] == nil {
		t.Error("forgotten at its retention")
	}
	s.clock.move(time.Second)
	house()
	if a.owner.ended.byID["e1"] != nil {
		t.Error("remembered beyond its retention")
	}
}

func TestStorageFullStopsAcceptingAndRecovers(t *testing.T) {
	s := newStage(t, func(c *Config) { c.FullRetry = time.Millisecond })
	a := s.owner(1)
	n := 0
	s.journal.mu.Lock()
	s.journal.before = func(int) (error, bool) {
		if n++; n <= 3 {
			if n == 2 {
				a.deliver(submit("r2", "chain 1"))
			}
			return fmt.Errorf("no room: %w", eventlog.ErrStorageFull), false
		}
		return nil, false
	}
	s.journal.mu.Unlock()
	a.deliver(submit("r1", "chain 1"))
	done := s.has("ack submit:r2")
	failed := 0
	for _, d := range done {
		if d == "append failed" {
			failed++
		}
	}
	if failed != 3 {
		t.Errorf("%d failed tries", failed)
	}
	notReady := slices.IndexFunc(done, func(d string) bool { return strings.HasPrefix(d, "health partition 0") })
	ready := slices.Index(done, "health <nil>")
	if notReady < 0 || ready < notReady || ready > indexOf(done, "ack submit:r1") {
		t.Errorf("readiness:\n%s", strings.Join(done, "\n"))
	}
	if !inOrder(done, "append r1", "ack submit:r1", "append r2", "ack submit:r2") {
		t.Errorf("order:\n%s", strings.Join(done, "\n"))
	}
}

func TestAssignIsFairAndMovesLittle(t *testing.T) {
	members := []string{"a", "b", "c", "d"}
	for _, partitions := range []int{1, 4, 7, 64} {
		var before []string
		for n := 1; n <= len(members); n++ {
			now := assign(members[:n], partitions)
			count := map[string]int{}
			for _, m := range now {
				count[m]++
			}
			for _, m := range members[:n] {
				if c := count[m]; c < partitions/n || c > (partitions+n-1)/n {
					t.Errorf("%d partitions, %d members: %s has %d", partitions, n, m, c)
				}
			}
			if fmt.Sprint(now) != fmt.Sprint(assign(reversed(members[:n]), partitions)) {
				t.Errorf("the order of the members changes the assignment")
			}
			moved := 0
			for p := range before {
				if before[p] != now[p] {
					moved++
				}
			}
			// The new member's share must move; bounding everybody's share moves some more.
			if limit := 2*partitions/n + 2; n > 1 && moved > limit {
				t.Errorf("%d partitions: %d moved when member %d came", partitions, moved, n)
			}
			before = now
		}
	}
}

func reversed(s []string) []string {
	out := slices.Clone(s)
	slices.Reverse(out)
	return out
}

func TestAnOversizedReportIsRefused(t *testing.T) {
	s := newStage(t, nil)
	s.tune = func(o *owner) { o.maxMessage = 4 << 10 }
	a := s.owner(1)
	a.deliver(submit("r", "chain 1"))
	a.deliver(proposal(t, "r", "chain 1"))
	s.has("ack plan:r")
	big := observed("r", "s0-1")
	noise := make([]byte, 0, 64<<10)
	for x := uint32(1); len(noise) < cap(noise); {
		x = x*1664525 + 1013904223
		noise = append(noise, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-"[x>>26])
	}
	big.GetResultReported().Observation = responder.Success(`"` + string(noise) + `"`)
	a.deliver(big)
	s.has("ack s0-1:r")
	if got := s.answer("s0-1:r"); got.GetCode() != codeTooLarge || !strings.Contains(got.GetMessage(), "max_payload") {
		t.Errorf("answer %v", got)
	}
	// Cancel always fits.
	a.deliver(cancelRun("r"))
	s.has("ack cancel:r")
	verify(t, s.commits("r"))
}
