package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func startBus(t *testing.T) jetstream.JetStream {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	nc, js, err := bus.Connect(s.Bus("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := bus.Init(t.Context(), js, bus.Layout{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	return js
}

func TestLease(t *testing.T) {
	js := startBus(t)
	k := keys{js, time.Second}
	first, err := acquire(t.Context(), k, 0, "a", "token-a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := acquire(t.Context(), k, 0, "b", "token-b"); !errors.Is(err, errHeld) {
		t.Fatalf("second holder: %v, want errHeld", err)
	}
	// A renewal keeps the time to live: without the next ones the key runs out.
	for range 3 {
		if err := first.renewOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// An answer got lost: the key holds what was written, under a revision that the holder does not know.
	first.mu.Lock()
	known := first.revision
	first.revision--
	first.mu.Unlock()
	if err := first.renewOnce(t.Context()); err != nil {
		t.Errorf("renewal after a lost answer: %v", err)
	}
	if first.revision != known || !first.Valid() {
		t.Errorf("revision %d, want %d", first.revision, known)
	}
	began := time.Now()
	var second *holding
	for second == nil {
		if second, err = acquire(t.Context(), k, 0, "b", "token-b"); err != nil && !errors.Is(err, errHeld) {
			t.Fatal(err)
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("the key did not run out: the renewal dropped its time to live")
		}
		time.Sleep(20 * time.Millisecond) // the time to live passes on the server
	}
	if first.Valid() {
		t.Error("the first holder's lease is still valid when another one has the key")
	}
	if second.Epoch() <= first.Epoch() {
		t.Errorf("epoch %d after %d", second.Epoch(), first.Epoch())
	}
	if err := first.renewOnce(t.Context()); !errors.Is(err, errHeld) {
		t.Errorf("renewal of what another one holds: %v", err)
	}
	// A release makes room at once, and the late release of the first changes nothing.
	if err := first.release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := second.renewOnce(t.Context()); err != nil {
		t.Errorf("after the first one's release: %v", err)
	}
	if err := second.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := acquire(t.Context(), k, 0, "c", "token-c"); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

func TestSenderStoresOnceAndRepeats(t *testing.T) {
	js := startBus(t)
	s, err := newSender(js.Conn(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	// The second of a subject is refused by the stream: somebody has it, which is success.
	s.send(bus.CallSubject("r", "s-1"), nil, []byte("one"))
	s.send(bus.CallSubject("r", "s-1"), nil, []byte("two"))
	s.send(bus.CallSubject("r", "s-2"), nil, []byte("three"))
	if !s.drain(10 * time.Second) {
		t.Fatal("not everything was settled")
	}
	stream, err := js.Stream(t.Context(), bus.StreamWork)
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n != 2 {
		t.Errorf("%d messages are stored", n)
	}
	m, err := stream.GetLastMsgForSubject(t.Context(), bus.CallSubject("r", "s-1"))
	if err != nil || string(m.Data) != "one" {
		t.Errorf("stored: %v, %v", m, err)
	}
	// Nothing takes it at first; it is sent until a stream does.
	s.send("later.x", nil, []byte("four"))
	if s.drain(50 * time.Millisecond) {
		t.Fatal("settled without a stream")
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LATER", Subjects: []string{"later.>"}}); err != nil {
		t.Fatal(err)
	}
	if !s.drain(10 * time.Second) {
		t.Error("not sent again")
	}
}

func TestReportsAreAnsweredOnInboxesOnly(t *testing.T) {
	js := startBus(t)
	c := Config{Name: "a"}.withDefaults()
	data, err := proto.Marshal(submit("r", "chain 1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"_INBOX.abc.1", "cairn.log.0", "_INBOX.", ""} {
		m := &nats.Msg{Subject: bus.ReportSubject(0, "r"), Data: data, Header: nats.Header{bus.HeaderAnswer: []string{to}}}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	src, err := openSource(t.Context(), js, &c, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if n := src.Waiting(); n != 4 {
		t.Errorf("%d reports wait", n)
	}
	var got []string
	for limit := time.After(10 * time.Second); len(got) < 4; {
		select {
		case <-src.Ready():
			for _, r := range src.Take() {
				got = append(got, r.answerTo)
				r.settle.Ack()
			}
		case <-limit:
			t.Fatalf("received %d reports", len(got))
		}
	}
	if fmt.Sprint(got) != "[_INBOX.abc.1   ]" {
		t.Errorf("answers go to %q", got)
	}
}

func TestASourceGoesOnAfterALostPullAndComesAgainAfterAReset(t *testing.T) {
	js := startBus(t)
	c := Config{Name: "a", PullExpiry: time.Second, ReportBatch: 8}.withDefaults()
	send := func(n int) {
		for i := range n {
			if _, err := js.Publish(t.Context(), bus.ReportSubject(0, fmt.Sprintf("r%d", i)), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	take := func(src source, n int) (got []*report) {
		t.Helper()
		for limit := time.After(15 * time.Second); len(got) < n; {
			select {
			case <-src.Ready():
				got = append(got, src.Take()...)
			case <-limit:
				t.Fatalf("received %d of %d", len(got), n)
			}
		}
		return got
	}
	src, err := openSource(t.Context(), js, &c, 0)
	if err != nil {
		t.Fatal(err)
	}
	send(20)
	take(src, 20) // and none is acknowledged
	// As if the server had lost the request: what is asked for never comes.
	s := src.(*pullSource)
	s.mu.Lock()
	old := s.inbox
	s.mu.Unlock()
	_ = old.Unsubscribe()
	send(5)
	take(src, 5)
	src.Close()
	// The next owner gets everything again, in order.
	again, err := openSource(t.Context(), js, &c, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	got := take(again, 25)
	for i, r := range got {
		want := bus.ReportSubject(0, fmt.Sprintf("r%d", i%20))
		if i >= 20 {
			want = bus.ReportSubject(0, fmt.Sprintf("r%d", i-20))
		}
		if r.subject != want {
			t.Fatalf("report %d is %s, want %s", i, r.subject, want)
		}
		r.settle.Ack()
	}
}

func TestMissingLooksEverywhere(t *testing.T) {
	js := startBus(t)
	cfg := Config{Name: "a"}.withDefaults()
	out, err := newBusOutside(t.Context(), js, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer out.drain(time.Second)
	for _, runs := range []int{1, wholeStream + 1} {
		var items []*work
		for r := range runs {
			for a := range 5 {
				id, action := fmt.Sprintf("run%d-%d", runs, r), fmt.Sprintf("s%d-1", a)
				items = append(items, newWork(&runv1.Work{RunId: id, Body: &runv1.Work_Call{Call: &runv1.CallWork{ActionId: action, Tool: "x.y"}}}, 1))
				subject := ""
				switch a {
				case 0:
					subject = bus.CallSubject(id, action)
				case 1:
					subject = tool.ActionSubject(id, action, "x.y")
				case 2:
					subject = tool.ResultSubject(id, action, "x.y")
				default:
					continue // lost
				}
				if _, err := js.Publish(t.Context(), subject, []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		look := func() int {
			missing, err := out.missing(t.Context(), 0, items)
			if err != nil {
				t.Fatal(err)
			}
			return len(missing)
		}
		if n := look(); n != 2*runs {
			t.Errorf("%d runs: %d missing, want 2 of each", runs, n)
		}
		// A report of a run waits: what it answers is not known yet.
		if _, err := js.Publish(t.Context(), bus.ReportSubject(0, fmt.Sprintf("run%d-0", runs)), []byte("x")); err != nil {
			t.Fatal(err)
		}
		if n := look(); n != 2*runs-2 {
			t.Errorf("%d runs, a report waits: %d missing", runs, n)
		}
	}
}
