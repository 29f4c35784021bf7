// Package eventlogtest is the suite that every eventlog.Log and eventlog.CheckpointStore passes.
package eventlogtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/eventlog"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Log runs the suite on logs that open makes: each with at least 2 empty partitions and messages of up to 8 MB,
// and with limits of time that a test can wait for.
func Log(t *testing.T, open func(t *testing.T) eventlog.Log) {
	t.Run("AppendAndRead", func(t *testing.T) { appendAndRead(t, open(t)) })
	t.Run("Case58_PartitionsInterleaved", func(t *testing.T) { interleaved(t, open(t)) })
	t.Run("Case44_OneAppendWinsPerSequence", func(t *testing.T) { oneWins(t, open(t)) })
	t.Run("RepeatOfStoredBytesSucceeds", func(t *testing.T) { repeat(t, open(t)) })
	t.Run("ReadEndsAtTheLastOfTheCall", func(t *testing.T) { readEnds(t, open(t)) })
	t.Run("FollowGoesOn", func(t *testing.T) { follow(t, open(t)) })
	t.Run("TooLarge", func(t *testing.T) { tooLarge(t, open(t)) })
}

func mustAppend(t *testing.T, l eventlog.Log, partition int, expected uint64, data string) uint64 {
	t.Helper()
	seq, err := l.Append(t.Context(), partition, expected, []byte(data))
	if err != nil {
		t.Fatalf("append %q after %d: %v", data, expected, err)
	}
	return seq
}

func readAll(t *testing.T, l eventlog.Log, partition int, after uint64) string {
	t.Helper()
	var got []string
	err := l.Read(t.Context(), partition, after, func(m eventlog.Message) error {
		if m.Sequence <= after {
			t.Errorf("sequence %d is not after %d", m.Sequence, after)
		}
		got = append(got, string(m.Data))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(got, " ")
}

func appendAndRead(t *testing.T, l eventlog.Log) {
	if last, err := l.Last(t.Context(), 0); err != nil || last != 0 {
		t.Fatalf("last of an empty partition: %d, %v", last, err)
	}
	if got := readAll(t, l, 0, 0); got != "" {
		t.Fatalf("empty partition holds %q", got)
	}
	a := mustAppend(t, l, 0, 0, "a")
	b := mustAppend(t, l, 0, a, "b")
	c := mustAppend(t, l, 0, b, "c")
	if got := readAll(t, l, 0, 0); got != "a b c" {
		t.Errorf("read all: %q", got)
	}
	if got := readAll(t, l, 0, a); got != "b c" {
		t.Errorf("read after the first: %q", got)
	}
	if got := readAll(t, l, 0, c); got != "" {
		t.Errorf("read after the last: %q", got)
	}
	if last, err := l.Last(t.Context(), 0); err != nil || last != c {
		t.Errorf("last %d, %v, want %d", last, err, c)
	}
	stop := errors.New("stop")
	if err := l.Read(t.Context(), 0, 0, func(eventlog.Message) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the reader became %v", err)
	}
}

func interleaved(t *testing.T, l eventlog.Log) {
	var last [2]uint64
	for i := range 6 {
		p := i % 2
		last[p] = mustAppend(t, l, p, last[p], fmt.Sprint(i))
	}
	if got := readAll(t, l, 0, 0) + "|" + readAll(t, l, 1, 0); got != "0 2 4|1 3 5" {
		t.Errorf("got %q", got)
	}
	// The expectation is the subject's last sequence, not the stream's: beyond what partition 0 holds it never matches.
	if _, err := l.Append(t.Context(), 0, last[1], []byte("x")); !errors.Is(err, eventlog.ErrConflict) {
		t.Errorf("append after another partition's sequence: %v, want ErrConflict", err)
	}
}

func oneWins(t *testing.T, l eventlog.Log) {
	const writers, rounds = 8, 20
	last := uint64(0)
	for r := range rounds {
		var mu sync.Mutex
		var wg sync.WaitGroup
		var won []uint64
		for w := range writers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				seq, err := l.Append(t.Context(), 0, last, fmt.Appendf(nil, "%d-%d", r, w))
				switch {
				case err == nil:
					mu.Lock()
					won = append(won, seq)
					mu.Unlock()
				case !errors.Is(err, eventlog.ErrConflict):
					t.Errorf("round %d, writer %d: %v, want ErrConflict", r, w, err)
				}
			}()
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d writers won", r, len(won))
		}
		last = won[0]
	}
	if n := len(strings.Fields(readAll(t, l, 0, 0))); n != rounds {
		t.Errorf("%d messages after %d rounds", n, rounds)
	}
}

func repeat(t *testing.T, l eventlog.Log) {
	a := mustAppend(t, l, 0, 0, "a")
	b := mustAppend(t, l, 0, a, "b")
	mustAppend(t, l, 0, b, "c")
	// As after an answer that got lost: the same bytes and expectation, though others follow already.
	if seq := mustAppend(t, l, 0, a, "b"); seq != b {
		t.Errorf("the repeat got sequence %d, want %d", seq, b)
	}
	if _, err := l.Append(t.Context(), 0, a, []byte("other")); !errors.Is(err, eventlog.ErrConflict) {
		t.Errorf("other bytes: %v, want ErrConflict", err)
	}
	if got := readAll(t, l, 0, 0); got != "a b c" {
		t.Errorf("the log holds %q", got)
	}
}

func readEnds(t *testing.T, l eventlog.Log) {
	a := mustAppend(t, l, 0, 0, "a")
	last := mustAppend(t, l, 0, a, "b")
	var got []string
	err := l.Read(t.Context(), 0, 0, func(m eventlog.Message) error {
		got = append(got, string(m.Data))
		if len(got) == 1 {
			last = mustAppend(t, l, 0, last, "c")
		}
		return nil
	})
	if err != nil || strings.Join(got, " ") != "a b" {
		t.Errorf("got %q, %v", got, err)
	}
}

func follow(t *testing.T, l eventlog.Log) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	last := mustAppend(t, l, 0, 0, "0")
	got := make(chan string)
	done := make(chan error, 1)
	go func() {
		done <- l.Follow(ctx, 0, 0, func(m eventlog.Message) error {
			got <- string(m.Data)
			return nil
		})
	}()
	for i := range 5 {
		if s := <-got; s != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, s)
		}
		mustAppend(t, l, 1, lastOf(t, l, 1), "other partition")
		last = mustAppend(t, l, 0, last, fmt.Sprint(i+1))
	}
	if s := <-got; s != "5" {
		t.Fatalf("last message is %q", s)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("follow ended with %v", err)
	}
}

func lastOf(t *testing.T, l eventlog.Log, p int) uint64 {
	t.Helper()
	last, err := l.Last(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return last
}

func tooLarge(t *testing.T, l eventlog.Log) {
	_, err := l.Append(t.Context(), 0, 0, bytes.Repeat([]byte("x"), 9<<20))
	if !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("9 MB: %v, want ErrTooLarge", err)
	}
	if got := readAll(t, l, 0, 0); got != "" {
		t.Errorf("something was stored")
	}
	mustAppend(t, l, 0, 0, strings.Repeat("y", 4<<20))
}

// Checkpoints runs the suite on empty stores that open makes.
func Checkpoints(t *testing.T, open func(t *testing.T) eventlog.CheckpointStore) {
	t.Run("NewestOfTwoKept", func(t *testing.T) { newestOfTwo(t, open(t)) })
	t.Run("BrokenOnesAreIgnored", func(t *testing.T) { broken(t, open(t)) })
	t.Run("None", func(t *testing.T) {
		err := eventlog.LoadCheckpoint(t.Context(), open(t), 0, func([]*runv1.Checkpoint) error { return nil }, func(err error) { t.Error(err) })
		if !errors.Is(err, eventlog.ErrNoCheckpoint) {
			t.Errorf("got %v", err)
		}
	})
}

func save(t *testing.T, s eventlog.CheckpointStore, partition int32, number int64, chunks int) {
	t.Helper()
	i := 0
	err := eventlog.SaveCheckpoint(t.Context(), s, func() *runv1.Checkpoint {
		if i == chunks {
			return nil
		}
		i++
		return &runv1.Checkpoint{Partition: partition, GroupNumber: number, Runs: []*runv1.CheckpointRun{
			{State: &runv1.RunState{RunId: fmt.Sprintf("r%d", i), Revision: number, QuarantineReason: strings.Repeat("x", 100_000)}},
		}}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// load returns the group number of what was loaded and the number of warnings.
func load(t *testing.T, s eventlog.CheckpointStore, partition int, chunks int) (number int64, warnings int) {
	t.Helper()
	err := eventlog.LoadCheckpoint(t.Context(), s, partition, func(got []*runv1.Checkpoint) error {
		if len(got) != chunks {
			t.Errorf("%d chunks, want %d", len(got), chunks)
		}
		for i, c := range got {
			if id := c.GetRuns()[0].GetState().GetRunId(); id != fmt.Sprintf("r%d", i+1) {
				t.Errorf("chunk %d holds %s", i, id)
			}
		}
		number = got[0].GetGroupNumber()
		return nil
	}, func(error) { warnings++ })
	if err != nil && !errors.Is(err, eventlog.ErrNoCheckpoint) {
		t.Fatal(err)
	}
	return number, warnings
}

func newestOfTwo(t *testing.T, s eventlog.CheckpointStore) {
	for _, n := range []int64{9, 10, 200} {
		save(t, s, 0, n, 25)
	}
	save(t, s, 1, 7, 1)
	if n, w := load(t, s, 0, 25); n != 200 || w != 0 {
		t.Errorf("partition 0: group %d with %d warnings", n, w)
	}
	if n, w := load(t, s, 1, 1); n != 7 || w != 0 {
		t.Errorf("partition 1: group %d with %d warnings", n, w)
	}
	if names, err := s.List(t.Context()); err != nil || len(names) != 3 {
		t.Errorf("kept %v, %v", names, err)
	}
}

func broken(t *testing.T, s eventlog.CheckpointStore) {
	save(t, s, 0, 1, 3)
	save(t, s, 0, 2, 3)
	names, err := s.List(t.Context())
	if err != nil || len(names) != 2 {
		t.Fatalf("%v, %v", names, err)
	}
	newest := names[0]
	if names[1] > newest {
		newest = names[1]
	}
	r, err := s.Get(t.Context(), newest)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := io.ReadAll(r)
	_ = r.Close()
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 0x10
	for name, data := range map[string][]byte{"cut": whole[:len(whole)/2], "flipped": flipped, "empty": {}, "text": []byte("no checkpoint")} {
		if err := s.Put(t.Context(), newest, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if n, w := load(t, s, 0, 3); n != 1 || w != 1 {
			t.Errorf("%s: loaded group %d with %d warnings, want the older one and one warning", name, n, w)
		}
	}
	for _, n := range names {
		if err := s.Delete(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := load(t, s, 0, 3); n != 0 {
		t.Errorf("loaded group %d out of a deleted store", n)
	}
}
