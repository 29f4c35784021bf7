package bus

import (
	"math/rand/v2"
	"time"
)

// Backoff is how long a message rests after its first, second, … failed delivery; the last one repeats. A bare negative
// acknowledgement would be delivered again at once and burn all deliveries in milliseconds.
type Backoff []time.Duration

// DefaultBackoff spaces deliveries so that a short outage is survived within five of them.
var DefaultBackoff = Backoff{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 8 * time.Second}

// backoffJitter is the share by which a delay is lengthened at most, so that messages that failed together come apart
// and none comes earlier than the schedule says.
const backoffJitter = 0.2

// After returns the rest after the n-th delivery (from 1), with jitter.
func (b Backoff) After(n int) time.Duration {
	if len(b) == 0 {
		return 0
	}
	d := b[min(max(n, 1), len(b))-1]
	return d + time.Duration(rand.Float64()*backoffJitter*float64(d))
}
