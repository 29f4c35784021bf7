package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
)

// keys writes the bucket CAIRN_OWNERS. The client library's update drops the time to live, so this publishes itself; and
// it reads from the stream's leader.
type keys struct {
	js  jetstream.JetStream
	ttl time.Duration
}

const keyPrefix = "$KV." + bus.BucketOwners + "."

// errHeld: the key has another value than expected.
var errHeld = errors.New("the key is held by another")

// put writes a key if its newest revision is the expected one (0: none).
func (k keys) put(ctx context.Context, key string, value []byte, expected uint64) (uint64, error) {
	ack, err := k.js.PublishMsg(ctx, &nats.Msg{Subject: keyPrefix + key, Data: value},
		jetstream.WithExpectLastSequencePerSubject(expected), jetstream.WithMsgTTL(k.ttl), jetstream.WithRetryAttempts(0))
	return k.revision(ack, err)
}

// set writes a key whatever it holds.
func (k keys) set(ctx context.Context, key string, value []byte) error {
	_, err := k.js.PublishMsg(ctx, &nats.Msg{Subject: keyPrefix + key, Data: value}, jetstream.WithMsgTTL(k.ttl), jetstream.WithRetryAttempts(0))
	return err
}

// remove takes a key away; expected 0: whatever it holds.
func (k keys) remove(ctx context.Context, key string, expected uint64) error {
	m := &nats.Msg{Subject: keyPrefix + key, Header: nats.Header{"KV-Operation": []string{"DEL"}}}
	opts := []jetstream.PublishOpt{jetstream.WithRetryAttempts(0), jetstream.WithMsgTTL(time.Minute)}
	if expected > 0 {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(expected))
	}
	ack, err := k.js.PublishMsg(ctx, m, opts...)
	_, err = k.revision(ack, err)
	return err
}

func (k keys) revision(ack *jetstream.PubAck, err error) (uint64, error) {
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, fmt.Errorf("%w: %w", errHeld, err)
	}
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// get returns a key's value and revision; no value where it is removed or expired, revision 0 where it was never there.
func (k keys) get(ctx context.Context, key string) ([]byte, uint64, error) {
	body, _ := json.Marshal(struct {
		Last string `json:"last_by_subj"`
	}{keyPrefix + key})
	msg, err := k.js.Conn().RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.MSG.GET.KV_"+bus.BucketOwners, body)
	if err != nil {
		return nil, 0, err
	}
	var r struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &r); err != nil {
		return nil, 0, fmt.Errorf("key %s: %w", key, err)
	}
	if r.Error != nil {
		if r.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return nil, 0, nil
		}
		return nil, 0, r.Error
	}
	// A marker, of a removal or an expiry, has no data; what is put here always has.
	return r.Message.Data, r.Message.Sequence, nil
}

// ownerValue stands in the key owner.<p>.
type ownerValue struct {
	Owner string `json:"owner"`
	// Token tells this holding from every other.
	Token string `json:"token"`
	Epoch int64  `json:"epoch"`
}

func ownerKey(partition int) string { return fmt.Sprintf("owner.%d", partition) }

// holding is a held key. It renews itself until it is released or lost.
type holding struct {
	keys  keys
	key   string
	value ownerValue
	lost  chan struct{}
	once  sync.Once

	mu       sync.Mutex
	revision uint64
	until    time.Time // monotonic
	gone     bool
}

// acquire takes the key of a partition that nobody holds; errHeld where somebody does.
func acquire(ctx context.Context, k keys, partition int, name, token string) (*holding, error) {
	h := &holding{keys: k, key: ownerKey(partition), value: ownerValue{Owner: name, Token: token}, lost: make(chan struct{})}
	data, revision, err := k.get(ctx, h.key)
	if err != nil {
		return nil, err
	}
	if len(data) > 0 {
		return nil, errHeld
	}
	sent := time.Now()
	value, _ := json.Marshal(h.value)
	h.revision, err = k.put(ctx, h.key, value, revision)
	if err != nil {
		return nil, err
	}
	// The revision is the stream's sequence: it grows with every holding.
	h.value.Epoch = int64(h.revision)
	h.until = sent.Add(k.ttl)
	return h, nil
}

// Valid implements lease.
func (h *holding) Valid() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.gone && time.Now().Before(h.until)
}

// Lost implements lease.
func (h *holding) Lost() <-chan struct{} { return h.lost }

// Epoch implements lease.
func (h *holding) Epoch() int64 { return h.value.Epoch }

// renew keeps the key until ctx ends or it is lost.
func (h *holding) renew(ctx context.Context) {
	t := time.NewTicker(h.keys.ttl / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := h.renewOnce(ctx); errors.Is(err, errHeld) || !h.Valid() {
			h.lose()
			return
		}
	}
}

func (h *holding) renewOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.keys.ttl/3)
	defer cancel()
	value, _ := json.Marshal(h.value)
	sent := time.Now()
	h.mu.Lock()
	expected := h.revision
	h.mu.Unlock()
	revision, err := h.keys.put(ctx, h.key, value, expected)
	if errors.Is(err, errHeld) {
		// Perhaps an earlier renewal was stored and its answer lost: then the key still holds our token.
		data, at, getErr := h.keys.get(ctx, h.key)
		var v ownerValue
		if getErr != nil {
			return getErr
		}
		if len(data) == 0 || json.Unmarshal(data, &v) != nil || v.Token != h.value.Token {
			return err
		}
		// Its time to live started when it was stored, at an unknown time: the lease is as it was, the next renewal extends it.
		h.mu.Lock()
		h.revision = at
		h.mu.Unlock()
		return nil
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.revision, h.until = revision, sent.Add(h.keys.ttl)
	h.mu.Unlock()
	return nil
}

func (h *holding) lose() {
	h.once.Do(func() {
		h.mu.Lock()
		h.gone = true
		h.mu.Unlock()
		close(h.lost)
	})
}

// release gives the key away, so that another need not wait for its end.
func (h *holding) release(ctx context.Context) error {
	h.mu.Lock()
	revision := h.revision
	h.mu.Unlock()
	h.lose()
	if err := h.keys.remove(ctx, h.key, revision); err != nil && !errors.Is(err, errHeld) {
		return err
	}
	return nil
}
