package eventlog_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/eventlog/eventlogtest"
)

// startBus is a server with Cairn's streams.
func startBus(t *testing.T) jetstream.JetStream {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	nc, js, err := bus.Connect(s.Bus("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := bus.Init(t.Context(), js, bus.Layout{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	return js
}

func TestMemoryLog(t *testing.T) {
	eventlogtest.Log(t, func(*testing.T) eventlog.Log { return eventlog.NewMemory() })
}

func TestNATSLog(t *testing.T) {
	eventlogtest.Log(t, func(t *testing.T) eventlog.Log {
		l, err := eventlog.NewNATS(t.Context(), startBus(t), eventlog.NATSConfig{TailLostAfter: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
}

func TestMemoryCheckpoints(t *testing.T) {
	eventlogtest.Checkpoints(t, func(*testing.T) eventlog.CheckpointStore { return eventlog.NewMemoryCheckpoints() })
}

func TestNATSCheckpoints(t *testing.T) {
	eventlogtest.Checkpoints(t, func(t *testing.T) eventlog.CheckpointStore {
		s, err := eventlog.NewNATSCheckpoints(t.Context(), startBus(t))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
