package gateway

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/telemetry"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

// house is a gateway with all that it talks to.
type house struct {
	t     *testing.T
	world *world
	js    jetstream.JetStream
	addr  string
	conn  *grpc.ClientConn
	// stop drains the gateway and returns what serve returned.
	stop func() error
}

// setup of a house; the zero value has streams, an owner and a run store.
type setup struct {
	config     Config
	tokens     tokens
	bare       bool // no streams
	leaderless bool // no owner
	noStore    bool
	server     *embedded.Server
	world      *world
	listener   net.Listener
}

func newServer(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func build(t *testing.T, s setup) *house {
	t.Helper()
	if s.server == nil {
		s.server = newServer(t)
	}
	if s.world == nil {
		s.world = newWorld()
	}
	nc, js, err := bus.Connect(s.server.Bus("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if !s.bare {
		if err := bus.Init(t.Context(), js, bus.Layout{}); err != nil {
			t.Fatal(err)
		}
	}
	if !s.bare && !s.leaderless {
		s.world.own(t, js)
	}
	c := s.config
	c.Bus = s.server.Bus("gateway")
	if c.RunStore == "" && !s.noStore {
		c.RunStore, _ = s.world.listenAsStore(t, "127.0.0.1:0")
	}
	if c.Times.Check == 0 {
		c.Times.Check = 5 * time.Millisecond
	}
	if c.Health == nil {
		c.Health = telemetry.NewHealth(component)
	}
	if s.listener == nil {
		if s.listener, err = listen(t.Context(), "127.0.0.1:0", time.Second, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, c.withDefaults(), s.tokens, s.listener) }()
	h := &house{t: t, world: s.world, js: js, addr: s.listener.Addr().String()}
	stopped := false
	h.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	})
	if h.conn, err = grpc.NewClient(h.addr, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.conn.Close() })
	if !s.bare {
		wait, done := context.WithTimeout(t.Context(), 20*time.Second)
		defer done()
		if err := c.Health.Wait(wait); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *house) runs() apiv1.RunServiceClient      { return apiv1.NewRunServiceClient(h.conn) }
func (h *house) queries() apiv1.QueryServiceClient { return apiv1.NewQueryServiceClient(h.conn) }
func (h *house) tools() apiv1.ToolServiceClient    { return apiv1.NewToolServiceClient(h.conn) }

// reply is an HTTP answer, read to its end.
type reply struct {
	code   int
	header http.Header
	body   string
}

// call does one HTTP request; headers are pairs.
func (h *house) call(method, path, body string, headers ...string) reply {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, "http://"+h.addr+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(data)}
}

// failure is the JSON of an answer that says no.
type failure struct {
	Code    int
	Status  string
	Message string
	Details []struct {
		Type       string `json:"@type"`
		Reason     string
		Domain     string
		Metadata   map[string]string
		RetryDelay string `json:"retry_delay"`
		Violations []struct {
			Field, Description, Reason string
		} `json:"field_violations"`
	}
}

func (r reply) failure(t *testing.T) failure {
	t.Helper()
	var f failure
	if err := json.Unmarshal([]byte(r.body), &f); err != nil {
		t.Fatalf("%d %s: %v", r.code, r.body, err)
	}
	return f
}

func (f failure) reason() string {
	for _, d := range f.Details {
		if strings.HasSuffix(d.Type, "ErrorInfo") && d.Domain == errorDomain {
			return d.Reason
		}
	}
	return ""
}

// fields lists "field reason" of each violation.
func (f failure) fields() []string {
	var all []string
	for _, d := range f.Details {
		for _, v := range d.Violations {
			all = append(all, v.Field+" "+v.Reason)
		}
	}
	return all
}

// fieldsOf is the same of a gRPC error.
func fieldsOf(err error) []string {
	var all []string
	for _, d := range status.Convert(err).Details() {
		if b, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range b.GetFieldViolations() {
				all = append(all, v.GetField()+" "+v.GetReason())
			}
		}
	}
	return all
}

// eventually waits until ok, which looks at something that gives no signal.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}
