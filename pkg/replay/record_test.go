package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/replay"
)

const exact = `{"id":9007199254740993,"p":9011.00,"e":1e2,"n":null,"t":"读✅` + "\u2028\u0085" + `"}`

// records are hand-written commits of one run: events by revision, with the last one large enough to be stored packed.
func records(t *testing.T, runID string) []replay.Record {
	t.Helper()
	var out []replay.Record
	var previous []byte
	revision := int64(0)
	for i, texts := range [][]string{{exact, `1`}, {`2`}, {`"` + strings.Repeat("x", 2*eventlog.CompressOver) + `"`}} {
		c := &runv1.Commit{
			RunId: runID, Time: timestamppb.New(time.Date(2026, 1, 2, 3, 4, i, 0, time.UTC)), RulesVersion: "0", PreviousHash: previous,
		}
		for _, text := range texts {
			revision++
			c.Events = append(c.Events, &runv1.Event{
				Revision: revision, Kind: runv1.EventKind_EVENT_KIND_RECORDED,
				Body: &runv1.Event_UserInputReceived{UserInputReceived: &runv1.UserInputReceived{Answer: &planv1.JsonText{Text: text}}},
			})
		}
		e, err := eventlog.EncodeCommit(c, revision)
		if err != nil {
			t.Fatal(err)
		}
		previous = eventlog.Hash(e.GetCommit())
		r, err := replay.NewRecord(e, 3, uint64(10+i))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

func export(t *testing.T, records []replay.Record) string {
	t.Helper()
	var out bytes.Buffer
	for _, r := range records {
		if err := replay.Write(&out, r.Export()); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// Cases 15 and 68: an export keeps values and stored bytes, a line a commit whatever the texts hold.
func TestCase15_Case68_ExportIsReadBackExactly(t *testing.T) {
	want := records(t, "r1")
	text := export(t, want)
	if n := strings.Count(text, "\n"); n != 3 {
		t.Fatalf("%d lines for 3 commits", n)
	}
	if !strings.Contains(text, exact) {
		t.Fatal("the value does not stand in the export as it is")
	}
	for name, in := range map[string]string{"as written": text, "no newline at the end, empty lines, CRLF": strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\r\n\r\n")} {
		got, err := replay.Read(strings.NewReader(in))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range want {
			if !proto.Equal(got[i].Entry, want[i].Entry) || !proto.Equal(got[i].Commit, want[i].Commit) ||
				got[i].Partition != 3 || got[i].Sequence != want[i].Sequence {
				t.Errorf("%s: commit %d is %v", name, i, got[i].Entry)
			}
		}
	}
	if want[2].Entry.GetEncoding() != runv1.Encoding_ENCODING_ZSTD {
		t.Fatal("no packed commit in the test")
	}
}

func TestBadExportsNameTheLine(t *testing.T) {
	text := export(t, records(t, "r1"))
	lines := strings.SplitAfter(text, "\n")
	for name, tc := range map[string]struct{ in, want string }{
		"empty":       {"\n\n", "cairn export RUN"},
		"no JSON":     {lines[0] + "{", "line 2 is not a line of cairn export"},
		"two runs":    {lines[0] + export(t, records(t, "r2")), "line 2 belongs to run r2"},
		"no bytes":    {`{"commit":{"run_id":"r1"}}`, "line 1: it has no stored bytes"},
		"other bytes": {`{"commit":{"run_id":"r1"},"stored":"AAAA"}`, "corrupt log data"},
		"unknown":     {`{"comit":{}}`, "unknown field"},
	} {
		if _, err := replay.Read(strings.NewReader(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestFromLogTakesOneRunOut(t *testing.T) {
	log := eventlog.NewMemory()
	chain := eventlog.Chain{}
	write := func(entries ...*runv1.Entry) {
		g := &runv1.Group{Epoch: 1, Number: chain.Number + 1, PreviousHash: chain.Hash, Entries: entries}
		data, err := eventlog.EncodeGroup(g)
		if err != nil {
			t.Fatal(err)
		}
		seq, err := log.Append(context.Background(), 0, chain.Sequence, data)
		if err != nil {
			t.Fatal(err)
		}
		chain.Accept(g, eventlog.Message{Sequence: seq, Data: data})
	}
	want, other := records(t, "r1"), records(t, "r2")
	write(other[0].Entry, want[0].Entry)
	write(want[1].Entry)
	write(other[1].Entry)
	write(want[2].Entry, other[2].Entry)
	got, err := replay.FromLog(t.Context(), log, 0, "r1")
	if err != nil || len(got) != 3 {
		t.Fatalf("%d commits, %v", len(got), err)
	}
	for i := range got {
		if !proto.Equal(got[i].Entry, want[i].Entry) {
			t.Errorf("commit %d is %v", i, got[i].Entry)
		}
	}
	if seqs := fmt.Sprint(got[0].Sequence, got[1].Sequence, got[2].Sequence); seqs != "1 2 4" {
		t.Errorf("sequences %s", seqs)
	}
	if _, err := replay.FromLog(t.Context(), log, 0, "r9"); !errors.Is(err, replay.ErrNoRun) {
		t.Errorf("unknown run: %v", err)
	}
	if _, err := log.Append(t.Context(), 0, chain.Sequence, []byte("\xff")); err != nil {
		t.Fatal(err)
	}
	var broken *eventlog.ChainError
	if _, err := replay.FromLog(t.Context(), log, 0, "r1"); !errors.As(err, &broken) {
		t.Errorf("damaged log: %v", err)
	}
}
