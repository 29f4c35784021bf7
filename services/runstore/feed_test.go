package runstore

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/eventlog"
)

// server is an embedded NATS with the streams of two partitions.
func natsServer(tb testing.TB, init bool) *embedded.Server {
	tb.Helper()
	s, err := embedded.Start(context.Background(), embedded.Config{Dir: tb.TempDir(), NoSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	if init {
		_, js := connect(tb, s)
		if err := bus.Init(context.Background(), js, bus.Layout{Partitions: 2}); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func connect(tb testing.TB, s *embedded.Server) (*nats.Conn, jetstream.JetStream) {
	tb.Helper()
	nc, js, err := bus.Connect(s.Bus("test"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc, js
}

// collector takes events of the feed in, as any NATS client would.
type collector struct {
	mu     sync.Mutex
	events []*nats.Msg
	grown  chan struct{}
}

func collect(tb testing.TB, nc *nats.Conn, subject string) *collector {
	tb.Helper()
	c := &collector{grown: make(chan struct{}, 1)}
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, m)
		select {
		case c.grown <- struct{}{}:
		default:
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		tb.Fatal(err)
	}
	return c
}

// until waits until done is content with what came.
func (c *collector) until(tb testing.TB, done func([]*nats.Msg) bool) []*nats.Msg {
	tb.Helper()
	limit := time.After(30 * time.Second)
	for {
		c.mu.Lock()
		got := c.events[:len(c.events):len(c.events)]
		c.mu.Unlock()
		if done(got) {
			return got
		}
		select {
		case <-c.grown:
		case <-limit:
			tb.Fatalf("%d events came", len(got))
		}
	}
}

type cloudEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            time.Time       `json:"time"`
	PartitionKey    string          `json:"partitionkey"`
	Traceparent     string          `json:"traceparent"`
	DataContentType string          `json:"datacontenttype"`
	DataRef         string          `json:"dataref"`
	Data            json.RawMessage `json:"data"`
}

func readCloudEvent(tb testing.TB, data []byte) cloudEvent {
	tb.Helper()
	var ce cloudEvent
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(&ce); err != nil {
		tb.Fatalf("%v in %s", err, data)
	}
	return ce
}

func TestCase68_CloudEventsKeepValuesExactly(t *testing.T) {
	const value = `{"p":9011.00,"id":9007199254740993,"t":"读✅<&>` + "\u2028" + `"}`
	a := newAuthor(t, nil, 1)
	c := a.commit("r1", observed("s", value))
	e := c.GetEvents()[0]
	e.Tenant = "shop/one"
	e.Trace = &runv1.TraceContext{Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	data, err := CloudEvent(e, true)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), value) || strings.ContainsAny(string(data), "\n\r") {
		t.Fatalf("not exact, or more than one line: %s", data)
	}
	ce := readCloudEvent(t, data)
	if ce.SpecVersion != "1.0" || ce.ID != "r1/1" || ce.Source != "cairn/shop%2Fone" || ce.Type != "cairn.run.v1.ObservationRecorded" ||
		ce.Subject != "r1" || !ce.Time.Equal(e.GetTime().AsTime()) || ce.DataContentType != "application/json" || ce.PartitionKey != "r1" ||
		ce.Traceparent != e.GetTrace().GetTraceparent() || ce.DataRef != "" {
		t.Fatalf("got %s", data)
	}
	var back runv1.Event
	if err := exactjson.Unmarshal(ce.Data, &back); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&back, e) {
		t.Fatalf("got %v, want %v", &back, e)
	}
	if data, err = CloudEvent(e, false); err != nil {
		t.Fatal(err)
	}
	if ce = readCloudEvent(t, data); ce.Data != nil || ce.DataRef != "/v1/runs/r1/events?after_revision=0&page_size=1" || ce.DataContentType != "" {
		t.Fatalf("got %s", data)
	}
}

// Two instances feed; each run's events come in order, whoever fed them, and none is missing.
func TestFeedIsOrderedPerRunAndSharedByInstances(t *testing.T) {
	srv := natsServer(t, true)
	nc, js := connect(t, srv)
	log, err := eventlog.NewNATS(t.Context(), js, eventlog.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthor(t, log, 2)
	all := collect(t, nc, "cairn.event.>")
	plans := collect(t, nc, "cairn.event.PlanCreated.>")
	ctx, cancel := context.WithCancel(t.Context())
	var feeding sync.WaitGroup
	for range 2 {
		_, js := connect(t, srv)
		feeding.Go(func() {
			if err := runFeed(ctx, js, quiet(t), 2, func(string, error) {}); err != nil {
				t.Error(err)
			}
		})
	}
	ids := scatter(a, rand.New(rand.NewPCG(7, 7)), 20)
	want := 0
	for _, id := range ids {
		want += int(a.runs[id].revision)
	}
	got := all.until(t, func(m []*nats.Msg) bool { return len(m) >= want })
	cancel()
	feeding.Wait()
	next := map[string]int64{}
	for _, m := range got {
		ce := readCloudEvent(t, m.Data)
		next[ce.Subject]++
		if ce.ID != fmt.Sprintf("%s/%d", ce.Subject, next[ce.Subject]) {
			t.Fatalf("%s at place %d of its run", ce.ID, next[ce.Subject])
		}
		if m.Header.Get(jetstream.MsgIDHeader) != ce.ID || m.Header.Get("Content-Type") != contentType {
			t.Fatalf("headers %v", m.Header)
		}
		if want := "cairn.event." + strings.TrimPrefix(ce.Type, "cairn.run.v1.") + "." + ce.Subject; m.Subject != want {
			t.Fatalf("subject %s, want %s", m.Subject, want)
		}
	}
	if len(got) != want {
		t.Fatalf("%d events, %d in the log", len(got), want)
	}
	if n := len(plans.until(t, func(m []*nats.Msg) bool { return len(m) >= 20 })); n != 20 {
		t.Fatalf("%d plans by their subject", n)
	}
}

// An instance that dies with a group half published: the next one publishes it again, and what was stored before is
// known by its id.
func TestFeedGoesOnAfterADeathWithinAGroup(t *testing.T) {
	srv := natsServer(t, true)
	nc, js := connect(t, srv)
	log, err := eventlog.NewNATS(t.Context(), js, eventlog.NATSConfig{})
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthor(t, log, 2)
	all := collect(t, nc, "cairn.event.>")
	a.say("r1", submitted("g"), planned("echo"), observed("s", "1"))
	a.say("r1", completed("1"))
	p := a.partition("r1")
	c := quiet(t)
	c.FeedAckWait = time.Second
	// What the dead one did: it took the group and published one event of it.
	cons, err := js.CreateOrUpdateConsumer(t.Context(), bus.StreamLog, jetstream.ConsumerConfig{
		Durable: feedName(p), FilterSubjects: []string{bus.LogSubject(p)}, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: c.FeedAckWait, MaxDeliver: -1, MaxAckPending: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	taken, err := cons.Next()
	if err != nil {
		t.Fatal(err)
	}
	g, err := eventlog.DecodeGroup(taken.Data())
	if err != nil {
		t.Fatal(err)
	}
	commit, err := eventlog.DecodeCommit(g.GetEntries()[0])
	if err != nil {
		t.Fatal(err)
	}
	dead := &feed{config: c, publisher: bus.NewPublisher(js, bus.PublisherConfig{}), payload: nc.MaxPayload, logger: c.Logger}
	if err := dead.publish(t.Context(), commit.GetEvents()[0]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runFeed(ctx, js, c, 2, func(string, error) {}) }()
	all.until(t, func(m []*nats.Msg) bool {
		return len(m) > 0 && strings.Contains(m[len(m)-1].Subject, "RunCompleted")
	})
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), bus.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		m, err := stream.GetMsg(t.Context(), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if ce := readCloudEvent(t, m.Data); ce.ID != fmt.Sprintf("r1/%d", i+1) {
			t.Fatalf("event %d of the stream is %s", i+1, ce.ID)
		}
	}
	if n := stream.CachedInfo().State.Msgs; n != 4 {
		t.Fatalf("%d events in the stream, want 4", n)
	}
}

func TestFeedRefersToEventsThatCannotBeShown(t *testing.T) {
	srv := natsServer(t, true)
	nc, js := connect(t, srv)
	all := collect(t, nc, "cairn.event.>")
	e := newAuthor(t, nil, 1).commit("r1", observed("s", `{"not json`)).GetEvents()[0]
	f := &feed{config: quiet(t), publisher: bus.NewPublisher(js, bus.PublisherConfig{}), logger: quiet(t).Logger, payload: nc.MaxPayload}
	if err := f.publish(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	got := all.until(t, func(m []*nats.Msg) bool { return len(m) == 1 })[0]
	if ce := readCloudEvent(t, got.Data); ce.Data != nil || ce.DataRef == "" {
		t.Fatalf("got %s", got.Data)
	}
}

func TestFeedRefersToEventsThatAreTooLarge(t *testing.T) {
	srv := natsServer(t, true)
	nc, js := connect(t, srv)
	all := collect(t, nc, "cairn.event.>")
	a := newAuthor(t, nil, 1)
	e := a.commit("r1", observed("s", `"`+strings.Repeat("x", 2000)+`"`)).GetEvents()[0]
	full, err := CloudEvent(e, true)
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{config: quiet(t), publisher: bus.NewPublisher(js, bus.PublisherConfig{}), logger: quiet(t).Logger}
	size := int64(0)
	for i, limit := range []func() int64{func() int64 { return 1 << 20 }, func() int64 { return size }, func() int64 { return size - 1 }} {
		f.payload = limit
		e.Id = fmt.Sprintf("r1/%d", i) // another message id each time
		if err := f.publish(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		got := all.until(t, func(m []*nats.Msg) bool { return len(m) > i })[i]
		if i == 0 {
			sent := &nats.Msg{Subject: got.Subject, Header: got.Header, Data: got.Data}
			size = int64(sent.Size())
		}
		if want := i == 2; (len(got.Data) < len(full)/2) != want {
			t.Errorf("limit %d: %d bytes were sent", limit(), len(got.Data))
		}
	}
}
