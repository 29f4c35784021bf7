package bus

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// awaitEvery is the time between two looks at what is missing.
const awaitEvery = 250 * time.Millisecond

// Await returns nil once NATS is reachable and every stream and bucket is there, and ctx's error when it ends first. It
// tells what is missing whenever that changes, and creates nothing.
func Await(ctx context.Context, js jetstream.JetStream, tell func(error)) error {
	said := ""
	for {
		err := fmt.Errorf("NATS at %q is not reached; is it running?", strings.Join(js.Conn().Servers(), ","))
		if js.Conn().IsConnected() {
			try, cancel := context.WithTimeout(ctx, 5*time.Second)
			err = Check(try, js)
			cancel()
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err.Error() != said {
			said = err.Error()
			tell(err)
		}
		if err := sleep(ctx, awaitEvery); err != nil {
			return err
		}
	}
}
