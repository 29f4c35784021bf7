package tool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// registerEvery is how often the registration is looked after: a bus may come back empty.
const registerEvery = 30 * time.Second

// ConsumerConfig is the consumer that all instances of a tool share. ackWait and maxDeliver below 1 take the defaults.
func ConsumerConfig(tool string, ackWait time.Duration, maxDeliver int) jetstream.ConsumerConfig {
	if ackWait <= 0 {
		ackWait = DefaultAckWait
	}
	if maxDeliver < 1 {
		maxDeliver = DefaultMaxDeliver
	}
	return jetstream.ConsumerConfig{
		Durable: DurableName(tool), FilterSubject: ActionFilter(tool), AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: ackWait, MaxDeliver: maxDeliver, MaxAckPending: 1000,
	}
}

// RedeliveryDelay is how long to put an action back for after its n-th delivery: 0.1, 0.5, 2, 8 s and a quarter more at
// random. A negative acknowledgement without a delay would use up all deliveries within milliseconds.
func RedeliveryDelay(delivery int) time.Duration {
	steps := [...]time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 8 * time.Second}
	d := steps[min(max(delivery, 1), len(steps))-1]
	return d + rand.N(d/4)
}

// worker serves one tool.
type worker struct {
	*server
	tool   *Tool
	recent *recent
	slots  chan struct{}
}

// run registers and consumes until ctx ends.
func (w *worker) run(ctx context.Context, l lifetimes) {
	name := w.tool.def.Name
	said := ""
	for ctx.Err() == nil {
		err := w.consume(ctx, l)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			continue
		}
		w.ready.set(name, err)
		if err.Error() != said {
			said = err.Error()
			w.Logger.Warn("tool is not served yet, trying again", "tool", name, "error", err)
		}
		select {
		case <-time.After(w.RetryWait):
		case <-ctx.Done():
		}
	}
}

// consume takes actions as long as slots are free. It returns after registerEvery, or with what went wrong.
func (w *worker) consume(ctx context.Context, l lifetimes) error {
	setup, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := w.register(setup); err != nil {
		return err
	}
	name := w.tool.def.Name
	cons, err := w.js.CreateOrUpdateConsumer(setup, StreamActions, ConsumerConfig(name, w.AckWait, w.MaxDeliver))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("stream %s is missing; create it with: cairn init --nats URL", StreamActions)
	}
	if err != nil {
		return fmt.Errorf("consumer %s: %w", DurableName(name), err)
	}
	w.ready.set(name, nil)
	for until := time.Now().Add(registerEvery); time.Now().Before(until) && ctx.Err() == nil; {
		free, err := w.takeSlots(ctx)
		if err != nil {
			return err
		}
		taken, err := w.pull(cons, free, l)
		w.giveSlots(free - taken)
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) pull(cons jetstream.Consumer, n int, l lifetimes) (taken int, err error) {
	batch, err := cons.Fetch(n, jetstream.FetchMaxWait(w.PullWait))
	if err != nil {
		return 0, fmt.Errorf("take actions of %s: %w", w.tool.def.Name, err)
	}
	for msg := range batch.Messages() {
		taken++
		handle := w.admit(l, msg)
		go func() {
			defer w.giveSlots(1)
			handle()
		}()
	}
	if err := batch.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return taken, fmt.Errorf("take actions of %s: %w", w.tool.def.Name, err)
	}
	return taken, nil
}

// takeSlots waits for one free slot and takes all that are free.
func (w *worker) takeSlots(ctx context.Context) (int, error) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for n := 1; ; n++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return n, nil
		}
	}
}

func (w *worker) giveSlots(n int) {
	for range n {
		<-w.slots
	}
}

// headerSize is what a header costs on the wire.
func headerSize(h map[string][]string) int {
	n := len("NATS/1.0\r\n\r\n")
	for k, values := range h {
		for _, v := range values {
			n += len(k) + len(v) + len(": \r\n")
		}
	}
	return n
}

// cut shortens s to at most n bytes at a rune border, as valid UTF-8.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
