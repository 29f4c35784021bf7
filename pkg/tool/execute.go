package tool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// maxErrorMessage and maxErrorDetails bound an error in bytes.
const (
	maxErrorMessage = 4 << 10
	maxErrorDetails = 64 << 10
)

// claimTries is how often a claim is tried with the same token before the action is put back.
const claimTries = 4

// delivery is an action in the hands of this instance. When the same action is delivered again while it is executed, the
// newer delivery takes over: only its acknowledgement counts.
type delivery struct {
	subject, runID, actionID string
	header                   nats.Header
	data                     []byte

	mu  sync.Mutex
	msg jetstream.Msg
}

func (d *delivery) replace(newer *delivery) {
	m := newer.current()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.msg = m
}

func (d *delivery) current() jetstream.Msg {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.msg
}

func (d *delivery) number() int {
	meta, err := d.current().Metadata()
	if err != nil {
		return 1
	}
	return int(meta.NumDelivered)
}

// verdict says what becomes of a delivery.
type verdict int

const (
	// answer: send the result, then acknowledge.
	answer verdict = iota
	// ignore: somebody else has started it; acknowledge and do nothing.
	ignore
	// again: put it back for later.
	again
)

// admit makes a delivery known, so that cancel signals and the drain find it, before its goroutine starts.
func (w *worker) admit(l lifetimes, msg jetstream.Msg) (handle func()) {
	runID, actionID, _, ok := ParseSubject(msg.Subject())
	if !ok {
		w.Logger.Error("not an action's subject, dropped", "subject", msg.Subject())
		_ = msg.Term()
		return func() {}
	}
	ctx, cancel := context.WithCancelCause(l.calling)
	remove := w.calls.add(&running{runID: runID, actionID: actionID, cancel: cancel})
	d := &delivery{subject: msg.Subject(), runID: runID, actionID: actionID, header: msg.Headers(), data: msg.Data(), msg: msg}
	return func() {
		defer remove()
		defer cancel(nil)
		w.handle(ctx, l.sending, d)
	}
}

func (w *worker) handle(ctx, sending context.Context, d *delivery) {
	key := d.subject + " " + d.header.Get(HeaderIdempotencyKey)
	cached, joined := w.recent.begin(key, d)
	if joined {
		return
	}
	if cached != nil {
		if w.send(sending, d, cached) {
			w.acknowledge(d)
		} else {
			w.putBack(d)
		}
		return
	}
	stop := w.heartbeat(d)
	defer stop()
	body, v := w.execute(ctx, d)
	if v == answer && !w.send(sending, d, body) {
		v = again
	}
	if v != answer {
		body = nil
	}
	w.recent.end(key, body)
	if v == again {
		w.putBack(d)
	} else {
		w.acknowledge(d)
	}
}

func (w *worker) acknowledge(d *delivery) {
	if err := d.current().Ack(); err != nil {
		w.Logger.Warn("acknowledgement not sent; the action comes again and is answered from memory", "run_id", d.runID, "action_id", d.actionID, "error", err)
	}
}

func (w *worker) putBack(d *delivery) {
	if err := d.current().NakWithDelay(RedeliveryDelay(d.number())); err != nil {
		w.Logger.Warn("action not put back; it comes again after the acknowledgement wait", "run_id", d.runID, "action_id", d.actionID, "error", err)
	}
}

// heartbeat keeps the action from being given to another instance.
func (w *worker) heartbeat(d *delivery) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(w.AckWait / 3)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				if err := d.current().InProgress(); err != nil {
					w.Logger.Warn("heartbeat not sent", "run_id", d.runID, "action_id", d.actionID, "error", err)
				}
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// execute does the call, once it may.
func (w *worker) execute(ctx context.Context, d *delivery) ([]byte, verdict) {
	started := time.Now()
	var m ActionMessage
	if err := json.Unmarshal(d.data, &m); err != nil {
		return w.refusal(d, Errorf(CodeInvalidArguments, "the action is not readable: %w", err)), answer
	}
	idempotent := w.tool.def.Idempotent && d.header.Get(HeaderIdempotent) != "false"
	notAfter := started.Add(w.timeout())
	if text := d.header.Get(HeaderNotAfter); text != "" {
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return w.refusal(d, Errorf(CodeInvalidArguments, "header %s: %w", HeaderNotAfter, err)), answer
		}
		notAfter = t
	}
	late := !started.Before(notAfter)
	if !idempotent {
		state := ClaimStarted
		if late {
			// So that a late answer is true: nobody has executed it, and nobody will.
			state = ClaimRevoked
		}
		created, err := w.claim(ctx, d, state)
		switch {
		case err != nil:
			w.Logger.Warn("start not claimed, action put back", "run_id", d.runID, "action_id", d.actionID, "error", err)
			return nil, again
		case !created:
			return nil, ignore
		}
	}
	if late {
		return w.refusal(d, Errorf(CodeTimeout, "not started: the deadline %s had passed", notAfter.Format(time.RFC3339Nano))), answer
	}
	call := w.newCall(d, m, notAfter)
	ctx, cancel := context.WithDeadlineCause(context.WithValue(ctx, callKey{}, call), notAfter, context.DeadlineExceeded)
	defer cancel()
	output, err := w.tool.Call(ctx, m.Arguments)
	fault, v := w.fault(ctx, err, idempotent)
	if v != answer {
		return nil, v
	}
	started = started.UTC()
	return w.encodeResult(d, &ResultMessage{
		Output: output, Usage: call.usageSet(), ExecutedBy: w.Instance, StartedAt: &started, Duration: Duration(time.Since(started)),
	}, fault), answer
}

// refusal answers an action that was not started: nobody is named as having executed it.
func (w *worker) refusal(d *delivery, fault *Error) []byte {
	return w.encodeResult(d, &ResultMessage{}, fault)
}

func (w *worker) timeout() time.Duration {
	if t := time.Duration(w.tool.def.Timeout); t > 0 {
		return t
	}
	return DefaultTimeout
}

func (w *worker) newCall(d *delivery, m ActionMessage, notAfter time.Time) *Call {
	return &Call{
		RunID: d.runID, ActionID: d.actionID, StepID: m.StepID, Attempt: m.Attempt, Tool: w.tool.def.Name, ToolVersion: m.ToolVersion,
		IdempotencyKey: d.header.Get(HeaderIdempotencyKey), NotAfter: notAfter,
		Traceparent: d.header.Get(HeaderTraceparent), Tracestate: d.header.Get(HeaderTracestate),
		publish: w.nc.Publish,
	}
}

// fault names what a call's error means. A function that names its error itself is believed; one that only stopped
// because its context ended is described by why the context ended.
func (w *worker) fault(ctx context.Context, err error, idempotent bool) (*Error, verdict) {
	var typed *Error
	if err == nil || errors.As(err, &typed) || ctx.Err() == nil {
		if err == nil {
			return nil, answer
		}
		return asError(err), answer
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errCancelled):
		return Errorf(CodeCancelled, "cancelled: %w", err), answer
	case errors.Is(cause, errShutdown) && idempotent:
		return nil, again
	case !idempotent:
		return Errorf(CodeUnknownOutcome, "the call stopped halfway: %s: %w", cause, err), answer
	default:
		return Errorf(CodeTimeout, "the deadline passed: %w", err), answer
	}
}

func (w *worker) claim(ctx context.Context, d *delivery, state string) (created bool, err error) {
	c := NewClaim(state, w.Instance)
	for try := 1; ; try++ {
		if created, err = Claim(ctx, w.js, d.runID, d.actionID, c); err == nil || try == claimTries || ctx.Err() != nil {
			return created, err
		}
		pause(ctx, RedeliveryDelay(1))
	}
}

func (w *worker) encodeResult(d *delivery, r *ResultMessage, fault *Error) []byte {
	r.Status = StatusSuccess
	if fault != nil {
		r.Status, r.Error = StatusError, fault.wire()
		if fault.partial {
			r.Status = StatusPartial
		} else {
			r.Output = nil
		}
		r.Error.Message = cut(r.Error.Message, maxErrorMessage)
		if len(r.Error.Details) > maxErrorDetails || r.Error.Details != nil && !json.Valid(r.Error.Details) {
			r.Error.Details = nil
		}
	}
	body, err := r.Encode()
	if err != nil {
		// Only an output that is not JSON gets here, and Call has checked it.
		w.Logger.Error("result not encoded", "run_id", d.runID, "action_id", d.actionID, "error", err)
		r = &ResultMessage{Status: StatusError, ExecutedBy: r.ExecutedBy, Error: &WireError{Code: CodeInvalidOutput, Message: cut(err.Error(), maxErrorMessage)}}
		body, _ = r.Encode()
	}
	return body
}

// send stores the result, trying until it is stored or the service stops.
func (w *worker) send(ctx context.Context, d *delivery, body []byte) bool {
	m := &nats.Msg{Subject: ResultSubject(d.runID, d.actionID, w.tool.def.Name), Header: nats.Header{}}
	for _, h := range []string{HeaderAttempt, HeaderContext, HeaderTraceparent, HeaderTracestate} {
		if v := d.header.Get(h); v != "" {
			m.Header.Set(h, v)
		}
	}
	for try := 1; ; try++ {
		err := w.trySend(ctx, m, body)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		w.Logger.Warn("result not stored, trying again", "run_id", d.runID, "action_id", d.actionID, "error", err)
		pause(ctx, RedeliveryDelay(min(try, 3)))
	}
}

func (w *worker) trySend(ctx context.Context, m *nats.Msg, body []byte) error {
	m.Data = body
	if int64(len(body)+headerSize(m.Header)) > w.nc.MaxPayload() {
		small, err := w.offload(ctx, body)
		if err != nil {
			return err
		}
		m.Data = small
	}
	_, err := w.js.PublishMsg(ctx, m, jetstream.WithExpectStream(StreamResults))
	return err
}

// offload puts the output of a result that is over the payload limit into the artifact store.
func (w *worker) offload(ctx context.Context, body []byte) ([]byte, error) {
	var r ResultMessage
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	if size := int64(len(r.Output)); size > w.MaxOutput {
		r.Status, r.Output = StatusError, nil
		r.Error = &WireError{Code: CodeOutputTooLarge, Message: fmt.Sprintf("the output has %d bytes, at most %d are taken", size, w.MaxOutput)}
		return r.Encode()
	}
	store, err := w.js.ObjectStore(ctx, BucketArtifacts)
	if err != nil {
		return nil, fmt.Errorf("artifact store %s: %w", BucketArtifacts, err)
	}
	sum := sha256.Sum256(r.Output)
	name := hex.EncodeToString(sum[:])
	if _, err := store.Put(ctx, jetstream.ObjectMeta{Name: name}, bytes.NewReader(r.Output)); err != nil {
		return nil, fmt.Errorf("artifact %s: %w", name, err)
	}
	r.OutputArtifact = &Artifact{SHA256: name, Size: int64(len(r.Output)), MediaType: "application/json"}
	r.Output = nil
	return r.Encode()
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
