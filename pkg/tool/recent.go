package tool

import "sync"

// recentMax bounds the remembered results of one tool, recentBytes their bodies' bytes together.
const (
	recentMax   = 1024
	recentBytes = 16 << 20
)

// recent remembers results of this instance, so that an action that comes again, because its acknowledgement was lost,
// is answered and not executed. It also knows what is under way. The key is the action with its idempotency key: a
// retry is another action and is executed.
type recent struct {
	mu      sync.Mutex
	running map[string]*delivery
	bodies  map[string][]byte
	order   []string
	bytes   int
}

func newRecent() *recent {
	return &recent{running: map[string]*delivery{}, bodies: map[string][]byte{}}
}

// begin says what to do with a delivery: answer with body, or, where the same action is under way, nothing: the newer
// delivery takes the older one's place.
func (r *recent) begin(key string, d *delivery) (body []byte, joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.bodies[key]; ok {
		return b, false
	}
	if first, ok := r.running[key]; ok {
		first.replace(d)
		return nil, true
	}
	r.running[key] = d
	return nil, false
}

// end forgets that the action is under way and keeps its result; a nil body keeps none.
func (r *recent) end(key string, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, key)
	if body == nil || len(body) > recentBytes/4 {
		return
	}
	if _, ok := r.bodies[key]; !ok {
		r.order = append(r.order, key)
		r.bytes += len(body)
		r.bodies[key] = body
	}
	for len(r.order) > recentMax || r.bytes > recentBytes {
		oldest := r.order[0]
		r.order = r.order[1:]
		r.bytes -= len(r.bodies[oldest])
		delete(r.bodies, oldest)
	}
}
