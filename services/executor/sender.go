package executor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
)

const (
	// sendTimeout is how long work waits to be acknowledged before it is sent again.
	sendTimeout = 5 * time.Second
	// sendPause is the wait before work is sent again that was refused or that no stream took.
	sendPause = 500 * time.Millisecond
	// sendTries bounds the tries; what is not stored by then is found by the sweep.
	sendTries = 20
	// sendTick is how often those are looked for.
	sendTick = 250 * time.Millisecond
)

// sender stores messages in JetStream without waiting. It does what the library's asynchronous publisher does, without a
// timer and a decoded answer a message, and repeats until a message is stored or somebody has it.
type sender struct {
	nc     *nats.Conn
	log    *slog.Logger
	prefix string
	sub    *nats.Subscription
	stop   chan struct{}

	mu      sync.Mutex
	next    uint64
	pending map[uint64]*sending
	idle    chan struct{} // closed when pending becomes empty; nil where nobody waits
}

type sending struct {
	subject string
	header  nats.Header
	data    []byte
	tries   int
	// again is when it is sent once more.
	again time.Time
}

func newSender(nc *nats.Conn, log *slog.Logger) (*sender, error) {
	s := &sender{nc: nc, log: log, prefix: nc.NewInbox() + ".", stop: make(chan struct{}), pending: map[uint64]*sending{}}
	sub, err := nc.Subscribe(s.prefix+"*", s.answered)
	if err != nil {
		return nil, fmt.Errorf("inbox for acknowledgements: %w", err)
	}
	_ = sub.SetPendingLimits(-1, -1)
	s.sub = sub
	go s.repeat()
	return s, nil
}

// send stores a message.
func (s *sender) send(subject string, header nats.Header, data []byte) {
	m := &sending{subject: subject, header: header, data: data, again: time.Now().Add(sendTimeout)}
	s.mu.Lock()
	s.next++
	id := s.next
	s.pending[id] = m
	s.mu.Unlock()
	s.try(id, m)
}

func (s *sender) try(id uint64, m *sending) {
	err := s.nc.PublishMsg(&nats.Msg{Subject: m.subject, Reply: s.prefix + strconv.FormatUint(id, 36), Header: m.header, Data: m.data})
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		s.log.Error("work is larger than the server takes and is not published", "subject", m.subject, "bytes", len(m.data))
		s.settle(id)
	case err != nil:
		s.postpone(id, err)
	}
}

func (s *sender) settle(id uint64) {
	s.mu.Lock()
	delete(s.pending, id)
	s.wakeIdle()
	s.mu.Unlock()
}

// wakeIdle needs the lock.
func (s *sender) wakeIdle() {
	if len(s.pending) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

func (s *sender) postpone(id uint64, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.pending[id]
	if m == nil {
		return
	}
	m.again = time.Now().Add(sendPause)
	if m.tries++; m.tries >= sendTries {
		delete(s.pending, id)
		s.wakeIdle()
		s.log.Warn("work was not stored; the sweep publishes it again", "subject", m.subject, "tries", m.tries, "error", why)
	}
}

var errorField = []byte(`"error"`)

// answered is called for each acknowledgement.
func (s *sender) answered(m *nats.Msg) {
	id, err := strconv.ParseUint(m.Subject[len(s.prefix):], 36, 64)
	if err != nil {
		return
	}
	switch {
	case len(m.Data) == 0:
		s.postpone(id, jetstream.ErrNoStreamResponse)
	case bytes.Contains(m.Data, errorField):
		var a struct {
			Error *jetstream.APIError `json:"error"`
		}
		if json.Unmarshal(m.Data, &a) == nil && a.Error != nil && !bus.IsQueued(a.Error) {
			s.postpone(id, a.Error)
			return
		}
		// A message of the same subject is still there: somebody has it.
		s.settle(id)
	default:
		s.settle(id)
	}
}

// repeat sends again what was not acknowledged in time.
func (s *sender) repeat() {
	t := time.NewTicker(sendTick)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-t.C:
			due := map[uint64]*sending{}
			s.mu.Lock()
			for id, m := range s.pending {
				if now.After(m.again) {
					m.again = now.Add(sendTimeout)
					due[id] = m
				}
			}
			s.mu.Unlock()
			for id, m := range due {
				s.try(id, m)
			}
		}
	}
}

// drain waits until everything is stored, or the limit.
func (s *sender) drain(limit time.Duration) bool {
	s.mu.Lock()
	if len(s.pending) == 0 {
		s.mu.Unlock()
		return true
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-time.After(limit):
		return false
	}
}

func (s *sender) close() {
	close(s.stop)
	_ = s.sub.Unsubscribe()
}
