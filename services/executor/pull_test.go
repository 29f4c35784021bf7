package executor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/pkg/bus"
)

// A batch of large reports would be more than the server keeps for one connection: what a pull brings is bounded in bytes,
// and no more is asked for while so much waits.
func TestLargeReportsComeAFewAtATime(t *testing.T) {
	js := startBus(t)
	const reports, size = 64, 1 << 20
	for i := range reports {
		if _, err := js.Publish(t.Context(), bus.ReportSubject(0, fmt.Sprintf("r%d", i)), []byte(strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
	}
	c := Config{ReportQueueBytes: size}.withDefaults()
	s, err := openSource(t.Context(), js, &c, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	most := max(c.ReportPullBytes, 2*int(js.Conn().MaxPayload())) / size
	got := 0
	for limit := time.Now().Add(30 * time.Second); got < reports; {
		if time.Now().After(limit) {
			t.Fatalf("%d of %d reports came", got, reports)
		}
		<-s.Ready()
		consumer, err := js.Consumer(t.Context(), bus.StreamReports, reportConsumer(0))
		if err != nil {
			t.Fatal(err)
		}
		info := consumer.CachedInfo()
		if info.NumWaiting > 0 {
			// More may still come on what was asked for.
			s.(*pullSource).signal()
			continue
		}
		batch := s.Take()
		if len(batch) > 2*most {
			t.Fatalf("%d reports of %d bytes came unasked, at most %d may", len(batch), size, 2*most)
		}
		for _, r := range batch {
			r.settle.Ack()
		}
		got += len(batch)
	}
}
