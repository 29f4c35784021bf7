package toolrouter_test

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// foreign is a tool instance that is not ours and can be as bad as it likes.
func (w *world) foreign(name string, ackWait time.Duration, maxDeliver int) jetstream.Consumer {
	w.t.Helper()
	value := `{"name":"` + name + `","version":"1.0.0","input_schema":{"type":"object"},"idempotent":true}`
	if kv, err := w.js.KeyValue(w.t.Context(), tool.BucketTools); err != nil {
		w.t.Fatal(err)
	} else if _, err := kv.Get(w.t.Context(), name); err != nil {
		_, err := kv.Put(w.t.Context(), name, []byte(value))
		must(w.t, err)
	}
	cons, err := w.js.CreateOrUpdateConsumer(w.t.Context(), tool.StreamActions, tool.ConsumerConfig(name, ackWait, maxDeliver))
	must(w.t, err)
	return cons
}

func (w *world) next(cons jetstream.Consumer) jetstream.Msg {
	w.t.Helper()
	m, err := cons.Next(jetstream.FetchMaxWait(patience))
	must(w.t, err)
	return m
}

// answer is what a well-behaved instance sends for an action.
func (w *world) answer(m jetstream.Msg, body string) {
	w.t.Helper()
	run, action, name, _ := tool.ParseSubject(m.Subject())
	r := &nats.Msg{Subject: tool.ResultSubject(run, action, name), Data: []byte(body), Header: nats.Header{}}
	r.Header.Set(tool.HeaderAttempt, m.Headers().Get(tool.HeaderAttempt))
	r.Header.Set(tool.HeaderContext, m.Headers().Get(tool.HeaderContext))
	_, err := w.js.PublishMsg(w.t.Context(), r)
	must(w.t, err)
}

func notIdempotent(w *runv1.Work) *runv1.Work {
	w.GetCall().Idempotent = false
	return w
}

// acks listens to a tool's acknowledgements of its next action. The function returned waits for the last one, which must be of
// the first delivery, and returns the number of heartbeats before it.
func (w *world) acks(name string) (beats func() int) {
	w.t.Helper()
	sub, err := w.nc.SubscribeSync("$JS.ACK." + tool.StreamActions + "." + tool.DurableName(name) + ".>")
	must(w.t, err)
	must(w.t, w.nc.Flush())
	return func() int {
		w.t.Helper()
		for n := 0; ; n++ {
			m, err := sub.NextMsg(patience)
			must(w.t, err)
			if delivery := strings.Split(m.Subject, ".")[4]; delivery != "1" {
				w.t.Fatalf("%s of delivery %s", m.Data, delivery)
			}
			if string(m.Data) == "+ACK" {
				must(w.t, sub.Unsubscribe())
				return n
			}
		}
	}
}
