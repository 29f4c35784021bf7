package eventlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
)

// scriptedStore answers publishes from a script and holds messages by sequence.
type scriptedStore struct {
	messages []jetstream.RawStreamMsg
	script   []func(s *scriptedStore, data []byte) (*jetstream.PubAck, error)
	tries    int
}

func (s *scriptedStore) publish(_ context.Context, _ string, _ uint64, data []byte) (*jetstream.PubAck, error) {
	f := s.script[min(s.tries, len(s.script)-1)]
	s.tries++
	return f(s, data)
}

func (s *scriptedStore) next(_ context.Context, _ string, sequence uint64) (*jetstream.RawStreamMsg, error) {
	for i := range s.messages {
		if s.messages[i].Sequence >= sequence {
			return &s.messages[i], nil
		}
	}
	return nil, jetstream.ErrMsgNotFound
}

func (s *scriptedStore) last(context.Context, string) (*jetstream.RawStreamMsg, error) {
	if len(s.messages) == 0 {
		return nil, jetstream.ErrMsgNotFound
	}
	return &s.messages[len(s.messages)-1], nil
}

func (s *scriptedStore) store(data string) uint64 {
	seq := uint64(10 * (len(s.messages) + 1))
	s.messages = append(s.messages, jetstream.RawStreamMsg{Sequence: seq, Data: []byte(data)})
	return seq
}

type answer = func(s *scriptedStore, data []byte) (*jetstream.PubAck, error)

func ack(seq uint64) answer {
	return func(*scriptedStore, []byte) (*jetstream.PubAck, error) { return &jetstream.PubAck{Sequence: seq}, nil }
}

func fail(err error) answer {
	return func(*scriptedStore, []byte) (*jetstream.PubAck, error) { return nil, err }
}

// lost stores the message and loses the answer.
func lost(err error) answer {
	return func(s *scriptedStore, data []byte) (*jetstream.PubAck, error) {
		s.store(string(data))
		return nil, err
	}
}

func code(c jetstream.ErrorCode, description string) error {
	return fmt.Errorf("nats: %w", &jetstream.APIError{Code: 400, ErrorCode: c, Description: description})
}

func TestCase58_AppendAnswers(t *testing.T) {
	ours := "ours"
	for _, c := range []struct {
		name   string
		stored []string // after the expected sequence
		script []answer
		want   error
		tries  int
	}{
		{"acknowledged", nil, []answer{ack(10)}, nil, 1},
		{"time-out, then acknowledged", nil, []answer{fail(context.DeadlineExceeded), ack(10)}, nil, 2},
		{"no responders, then acknowledged", nil, []answer{fail(jetstream.ErrNoStreamResponse), ack(10)}, nil, 2},
		{"disconnected, then acknowledged", nil, []answer{fail(nats.ErrDisconnected), ack(10)}, nil, 2},
		{"no leader, then acknowledged", nil, []answer{fail(code(10008, "system temporarily unavailable")), ack(10)}, nil, 2},
		{"stored and the answer lost: 10071", nil, []answer{lost(context.DeadlineExceeded), fail(code(10071, "wrong last sequence: 10"))}, nil, 2},
		{"stored and the answer lost: 10164", nil, []answer{lost(context.DeadlineExceeded), fail(code(10164, "wrong last sequence"))}, nil, 2},
		{"stored, others after it", []string{ours, "theirs"}, []answer{fail(code(10071, "wrong last sequence: 20"))}, nil, 1},
		{"another one: 10071", []string{"theirs"}, []answer{fail(code(10071, "wrong last sequence: 10"))}, ErrConflict, 1},
		{"another one: 10164", []string{"theirs"}, []answer{fail(code(10164, "wrong last sequence"))}, ErrConflict, 1},
		{"another one first, ours only later", []string{"theirs", ours}, []answer{fail(code(10071, "wrong last sequence: 20"))}, ErrConflict, 1},
		{"in flight: nothing to be seen yet", nil, []answer{fail(code(10164, "wrong last sequence")), fail(code(10164, "wrong last sequence")), ack(10)}, nil, 3},
		{"storage full", nil, []answer{fail(code(10047, "insufficient storage resources available"))}, ErrStorageFull, 1},
		{"store failed", nil, []answer{fail(code(10077, "maximum bytes exceeded"))}, ErrStorageFull, 1},
		{"too large for the stream", nil, []answer{fail(code(10054, "message size exceeds maximum allowed"))}, ErrTooLarge, 1},
		{"too large for the connection", nil, []answer{fail(nats.ErrMaxPayload)}, ErrTooLarge, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := &scriptedStore{script: c.script}
			for _, m := range c.stored {
				store.store(m)
			}
			l := &NATS{store: store, config: NATSConfig{RetryWait: time.Millisecond}.withDefaults()}
			seq, err := l.Append(t.Context(), 0, 0, []byte(ours))
			if !errors.Is(err, c.want) || store.tries != c.tries {
				t.Fatalf("got %v after %d tries, want %v after %d", err, store.tries, c.want, c.tries)
			}
			if c.want == nil && seq != 10 {
				t.Errorf("sequence %d, want 10", seq)
			}
		})
	}
}

func TestAppendStaysOpenUntilItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := &scriptedStore{script: []answer{fail(context.DeadlineExceeded), fail(context.DeadlineExceeded), func(*scriptedStore, []byte) (*jetstream.PubAck, error) {
		cancel()
		return nil, context.DeadlineExceeded
	}}}
	l := &NATS{store: store, config: NATSConfig{RetryWait: time.Millisecond}.withDefaults()}
	_, err := l.Append(ctx, 3, 7, []byte("ours"))
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrConflict) {
		t.Errorf("got %v, want the context's error", err)
	}
}

func TestAppendFindsThatTheTailWasLost(t *testing.T) {
	store := &scriptedStore{script: []answer{fail(code(10071, "wrong last sequence: 10"))}}
	store.store("what is left") // sequence 10
	l := &NATS{store: store, config: NATSConfig{RetryWait: time.Millisecond, TailLostAfter: 20 * time.Millisecond}.withDefaults()}
	if _, err := l.Append(t.Context(), 0, 20, []byte("ours")); !errors.Is(err, ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
}

// Case 57: a duplicate says that the message id is known, not that these bytes are stored.
func TestCase57_DuplicateCountsOnlyIfTheStoredBytesAreOurs(t *testing.T) {
	duplicate := func(*scriptedStore, []byte) (*jetstream.PubAck, error) {
		return &jetstream.PubAck{Sequence: 10, Duplicate: true}, nil
	}
	for stored, want := range map[string]error{"ours": nil, "theirs": ErrConflict} {
		store := &scriptedStore{script: []answer{duplicate}}
		store.store(stored)
		l := &NATS{store: store, config: NATSConfig{RetryWait: time.Millisecond}.withDefaults()}
		if _, err := l.Append(t.Context(), 0, 0, []byte("ours")); !errors.Is(err, want) {
			t.Errorf("%s is stored: %v, want %v", stored, err, want)
		}
	}
}

func TestLogSubjectsAreExact(t *testing.T) {
	if s := bus.LogSubject(3); s != "cairn.log.3" {
		t.Errorf("partition 3 is on %s", s)
	}
}
