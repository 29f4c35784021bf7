package eventlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/eventlog"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// groups makes a chain of messages.
func groups(t *testing.T, n int) []eventlog.Message {
	t.Helper()
	chain := eventlog.Chain{Partition: 1}
	var out []eventlog.Message
	for i := range n {
		g := &runv1.Group{Partition: 1, Epoch: 5, Number: int64(i + 1), PreviousHash: chain.Hash, Owner: "a"}
		out = append(out, message(t, g, uint64(10*(i+1))))
		chain.Accept(g, out[i])
	}
	return out
}

func message(t *testing.T, g *runv1.Group, sequence uint64) eventlog.Message {
	t.Helper()
	data, err := eventlog.EncodeGroup(g)
	if err != nil {
		t.Fatal(err)
	}
	return eventlog.Message{Sequence: sequence, Data: data}
}

func TestCase58_ChainRefusesWhatDoesNotFollow(t *testing.T) {
	second := func(change func(*runv1.Group)) func(t *testing.T, m []eventlog.Message) eventlog.Message {
		return func(t *testing.T, m []eventlog.Message) eventlog.Message {
			g, err := eventlog.DecodeGroup(m[1].Data)
			if err != nil {
				t.Fatal(err)
			}
			change(g)
			return message(t, g, 25)
		}
	}
	for _, c := range []struct {
		name string
		bad  func(t *testing.T, m []eventlog.Message) eventlog.Message
		want error
		says string
	}{
		{"second group of the same number", func(t *testing.T, m []eventlog.Message) eventlog.Message {
			return message(t, &runv1.Group{Partition: 1, Epoch: 4, Number: 1, Owner: "deposed"}, 25)
		}, eventlog.ErrFork, `"deposed" in epoch 4`},
		{"a missing group", func(_ *testing.T, m []eventlog.Message) eventlog.Message { return m[2] }, eventlog.ErrGap, "1 groups before it"},
		{"another partition's", second(func(g *runv1.Group) { g.Partition = 2 }), eventlog.ErrCorrupt, "partition 2"},
		{"another history", second(func(g *runv1.Group) { g.PreviousHash = []byte("x") }), eventlog.ErrCorrupt, "by hash"},
		{"an older epoch", second(func(g *runv1.Group) { g.Epoch = 4 }), eventlog.ErrCorrupt, "epoch 4 after epoch 5"},
		{"no group at all", func(*testing.T, []eventlog.Message) eventlog.Message {
			return eventlog.Message{Sequence: 25, Data: []byte("nonsense")}
		}, eventlog.ErrCorrupt, "sequence 25"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := groups(t, 3)
			chain := eventlog.Chain{Partition: 1}
			if _, err := chain.Next(m[0]); err != nil {
				t.Fatal(err)
			}
			_, err := chain.Next(c.bad(t, m))
			var where *eventlog.ChainError
			if !errors.Is(err, c.want) || !errors.As(err, &where) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want %v that says %q", err, c.want, c.says)
			}
			if where.Want != 2 || where.Partition != 1 {
				t.Errorf("it says %+v", where)
			}
			// The chain stays where it is, and the true second group still follows.
			if g, err := chain.Next(m[1]); err != nil || g.GetNumber() != 2 {
				t.Errorf("after the refusal: %v, %v", g, err)
			}
		})
	}
}

func TestAFlippedBitIsNoticed(t *testing.T) {
	m := groups(t, 2)
	m[0].Data = bytes.Clone(m[0].Data)
	m[0].Data[len(m[0].Data)-1] ^= 1 // in the owner's name: it still decodes
	chain := eventlog.Chain{Partition: 1}
	if _, err := chain.Next(m[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Next(m[1]); !errors.Is(err, eventlog.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt at the group after it", err)
	}
}

func commit(n int, text string) *runv1.Commit {
	at := timestamppb.New(time.Date(2030, 1, 1, 0, 0, 0, 7, time.UTC))
	c := &runv1.Commit{RunId: "r1", Tenant: "t", Time: at, RulesVersion: "1", StateHash: []byte("h"), Status: runv1.RunStatus_RUN_STATUS_RUNNING}
	for i := range n {
		revision := int64(i + 3)
		c.Events = append(c.Events, &runv1.Event{
			Id: eventlog.EventID("r1", revision), RunId: "r1", Revision: revision, Tenant: "t", Kind: runv1.EventKind_EVENT_KIND_DECIDED, Time: at,
			Cause: &runv1.Cause{Revision: 2}, Trace: &runv1.TraceContext{Traceparent: "p"}, Rule: &runv1.Rule{Name: "ready"},
			Body: &runv1.Event_StepSkipped{StepSkipped: &runv1.StepSkipped{StepId: fmt.Sprintf("s%d", i), Detail: text}},
		})
	}
	return c
}

func TestCommitsAreStoredLeanAndReadWhole(t *testing.T) {
	for _, c := range []struct {
		name     string
		text     string
		encoding runv1.Encoding
	}{
		{"small", "x", runv1.Encoding_ENCODING_RAW},
		{"large", strings.Repeat("words that compress well ", 4000), runv1.Encoding_ENCODING_ZSTD},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole := commit(3, c.text)
			later := timestamppb.New(whole.GetTime().AsTime().Add(time.Second))
			whole.Events[2].Time = later
			before := proto.Clone(whole)
			e, err := eventlog.EncodeCommit(whole, 5)
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(whole, before) {
				t.Error("encoding changed the commit")
			}
			if e.GetEncoding() != c.encoding || e.GetFirstRevision() != 3 || e.GetLastRevision() != 5 || e.GetRunId() != "r1" {
				t.Errorf("entry %s %d to %d, %s", e.GetRunId(), e.GetFirstRevision(), e.GetLastRevision(), e.GetEncoding())
			}
			if c.encoding == runv1.Encoding_ENCODING_RAW && bytes.Contains(e.GetCommit(), []byte("r1/3")) {
				t.Error("event ids are stored")
			}
			got, err := eventlog.DecodeCommit(e)
			if err != nil || !proto.Equal(got, before) {
				t.Errorf("read back: %v, %v", got, err)
			}
		})
	}
}

func TestCompressionBeginsOverItsLimit(t *testing.T) {
	base, err := eventlog.EncodeCommit(commit(1, strings.Repeat("a", 1000)), 3)
	if err != nil {
		t.Fatal(err)
	}
	fill := eventlog.CompressOver - len(base.GetCommit()) + 1000 - 4 // the lengths around the text take more bytes
	for ; ; fill++ {
		e, err := eventlog.EncodeCommit(commit(1, strings.Repeat("a", fill)), 3)
		if err != nil {
			t.Fatal(err)
		}
		if e.GetEncoding() == runv1.Encoding_ENCODING_ZSTD {
			raw := proto.Size(commit(1, strings.Repeat("a", fill)))
			if raw <= eventlog.CompressOver {
				t.Errorf("%d bytes were compressed", raw)
			}
			return
		}
		if len(e.GetCommit()) > eventlog.CompressOver {
			t.Fatalf("%d bytes were not compressed", len(e.GetCommit()))
		}
	}
}

func TestBrokenCommitsAreNamed(t *testing.T) {
	good, err := eventlog.EncodeCommit(commit(1, strings.Repeat("text ", 20_000)), 3)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*runv1.Entry){
		"cut":              func(e *runv1.Entry) { e.Commit = e.GetCommit()[:len(e.GetCommit())/2] },
		"unknown encoding": func(e *runv1.Entry) { e.Encoding = 9 },
		"another run":      func(e *runv1.Entry) { e.RunId = "r2" },
		"not compressed":   func(e *runv1.Entry) { e.Encoding = runv1.Encoding_ENCODING_RAW },
	} {
		e := proto.CloneOf(good)
		change(e)
		if _, err := eventlog.DecodeCommit(e); !errors.Is(err, eventlog.ErrCorrupt) || !strings.Contains(err.Error(), "r1") && name != "another run" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckCommit(t *testing.T) {
	c := commit(2, "x") // revisions 3 and 4
	c.PreviousHash = []byte("before")
	e, err := eventlog.EncodeCommit(c, 4)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		name     string
		known    bool
		revision int64
		previous string
		ok       bool
	}{
		{"follows", true, 2, "before", true},
		{"gap", true, 1, "before", false},
		{"repeat", true, 3, "before", false},
		{"another commit before it", true, 2, "other", false},
		{"nothing known of the run", false, 0, "", true},
	} {
		if err := eventlog.CheckCommit(e, c, k.known, k.revision, []byte(k.previous)); (err == nil) != k.ok {
			t.Errorf("%s: %v", k.name, err)
		}
	}
}
