package bus

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Config says how to reach NATS.
type Config struct {
	// URL of the server or cluster, as nats://127.0.0.1:4222.
	URL string
	// Name shown by the server for this connection.
	Name string
	// Options are added last: an in-process server, credentials, TLS.
	Options []nats.Option
}

// Connect dials and keeps trying after losses for ever, since start-up order and restarts must not matter.
func Connect(c Config) (*nats.Conn, jetstream.JetStream, error) {
	opts := append([]nats.Option{
		nats.Name(c.Name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.Timeout(5 * time.Second),
	}, c.Options...)
	nc, err := nats.Connect(c.URL, opts...)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to NATS at %q: %w", c.URL, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("JetStream at %q: %w", c.URL, err)
	}
	return nc, js, nil
}
