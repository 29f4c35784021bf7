package bus_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
)

// fill stores n messages of 100 runs.
func fill(b *testing.B, js jetstream.JetStream, n int) {
	b.Helper()
	body := make([]byte, 512)
	for i := range n {
		if _, err := js.PublishAsync(bus.ReportSubject(0, fmt.Sprintf("r%d", i%100)), body); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}

// BenchmarkRaw is what the client library consumes with nothing around it.
func BenchmarkRaw(b *testing.B) {
	js := connect(b)
	fill(b, js, b.N)
	c, err := js.CreateConsumer(b.Context(), bus.StreamReports, jetstream.ConsumerConfig{Durable: "raw", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 4096})
	if err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	done := make(chan struct{})
	b.ResetTimer()
	cc, err := c.Consume(func(m jetstream.Msg) {
		_ = m.Ack()
		if n.Add(1) == int64(b.N) {
			close(done)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	<-done
	b.StopTimer()
	cc.Stop()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkRouter is the same through lanes, heartbeats, Watermill's router and the middleware.
func BenchmarkRouter(b *testing.B) {
	js := connect(b)
	fill(b, js, b.N)
	s, err := bus.NewSubscriber(js, bus.SubscriberConfig{Stream: bus.StreamReports, Durable: "router"})
	if err != nil {
		b.Fatal(err)
	}
	r, err := bus.NewRouter(bus.RouterConfig{})
	if err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	done := make(chan struct{})
	r.AddConsumerHandler("bench", bus.ReportPrefix+">", s, func(*message.Message) error {
		if n.Add(1) == int64(b.N) {
			close(done)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	b.ResetTimer()
	go func() { ended <- r.Run(ctx) }()
	<-done
	b.StopTimer()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
