package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// frame is one block of a stream of server-sent events, as a browser reads it.
type frame struct {
	id, event, data, comment, retry string
	dataLines                       int
}

// frames reads blocks until the stream ends.
func frames(r io.Reader) <-chan frame {
	out := make(chan frame, 1000)
	go func() {
		defer close(out)
		lines := bufio.NewReader(r)
		var f frame
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			line = strings.TrimSuffix(line, "\n")
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case line == "":
				out <- f
				f = frame{}
			case name == "":
				f.comment = value
			case name == "id":
				f.id = value
			case name == "event":
				f.event = value
			case name == "retry":
				f.retry = value
			case name == "data":
				f.data += value
				f.dataLines++
			}
		}
	}()
	return out
}

// next waits for the next frame that is an event.
func next(t *testing.T, in <-chan frame) frame {
	t.Helper()
	for {
		select {
		case f, ok := <-in:
			if !ok {
				t.Fatal("the stream ended")
			}
			if f.event != "" {
				return f
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no event")
		}
	}
}

// watch opens a stream of server-sent events; headers are pairs.
func (h *house) watch(ctx context.Context, path string, headers ...string) (*http.Response, <-chan frame) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+h.addr+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp, frames(resp.Body)
}

func step(id string) *runv1.Event {
	return &runv1.Event{Body: &runv1.Event_StepStarted{StepStarted: &runv1.StepStarted{StepId: id}}}
}

func completed() *runv1.Event {
	return &runv1.Event{Body: &runv1.Event_RunCompleted{RunCompleted: &runv1.RunCompleted{Answer: &planv1.JsonText{Text: "1"}}}}
}

func TestServerSentEventsResumeWithoutGapOrRepeat(t *testing.T) {
	h := build(t, setup{})
	for _, id := range []string{"a", "b", "c"} {
		h.world.add("r1", step(id))
	}
	resp, in := h.watch(t.Context(), "/v1/runs/r1/watch")
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream; charset=utf-8" {
		t.Errorf("Content-Type %s", kind)
	}
	if f := <-in; f.retry != "2000" {
		t.Errorf("first frame %+v, want retry", f)
	}
	for _, want := range []string{"1", "2", "3"} {
		if f := next(t, in); f.id != want || f.event != "StepStarted" {
			t.Errorf("got %+v, want id %s", f, want)
		}
	}
	// It goes on live, and ends with the event that ends the run.
	h.world.add("r1", step("d"))
	if f := next(t, in); f.id != "4" || !strings.Contains(f.data, `"step_id":"d"`) {
		t.Errorf("live: %+v", f)
	}
	h.world.add("r1", completed())
	if f := next(t, in); f.id != "5" || f.event != "RunCompleted" {
		t.Errorf("end: %+v", f)
	}
	if f, more := <-in; more {
		t.Errorf("after the end: %+v", f)
	}

	for _, c := range []struct {
		path    string
		headers []string
		want    []string
	}{
		{"/v1/runs/r1/watch", []string{"Last-Event-ID", "3"}, []string{"4", "5"}},
		{"/v1/runs/r1/watch?after=3", nil, []string{"4", "5"}},
		{"/v1/runs/r1/watch?after=1", []string{"Last-Event-ID", "4"}, []string{"5"}},
		{"/v1/runs/r1/watch?after=0&position.partition=1&position.sequence=9", nil, []string{"1", "2", "3", "4", "5"}},
	} {
		_, in := h.watch(t.Context(), c.path, c.headers...)
		var got []string
		for f := range in {
			if f.event != "" {
				got = append(got, f.id)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %v: ids %q, want %q", c.path, c.headers, got, c.want)
		}
	}
	// Who has seen the end is told not to come back.
	if resp, _ := h.watch(t.Context(), "/v1/runs/r1/watch", "Last-Event-ID", "5"); resp.StatusCode != http.StatusNoContent {
		t.Errorf("after the end: %s", resp.Status)
	}
}

func TestBadWatchesAreRefusedBeforeTheStreamBegins(t *testing.T) {
	h := build(t, setup{})
	h.world.add("r1", step("a"))
	for _, c := range []struct {
		path   string
		header string
		code   int
		want   string
	}{
		{"/v1/runs/nobody/watch", "", http.StatusNotFound, ""},
		{"/v1/runs/a.b/watch", "", http.StatusBadRequest, "run_id invalid_id"},
		{"/v1/runs/r1/watch?after=-1", "", http.StatusBadRequest, "after invalid_argument"},
		{"/v1/runs/r1/watch?from=1", "", http.StatusBadRequest, "from invalid_argument"},
		{"/v1/runs/r1/watch", "new", http.StatusBadRequest, "Last-Event-ID invalid_argument"},
	} {
		r := h.call("GET", c.path, "", "Last-Event-ID", c.header)
		if r.code != c.code || (c.want != "" && !slices.Contains(r.failure(t).fields(), c.want)) {
			t.Errorf("%s: %d %s", c.path, r.code, r.body)
		}
	}
}

func TestSilentStreamGetsComments(t *testing.T) {
	h := build(t, setup{config: Config{Times: Times{Comment: 10 * time.Millisecond, FirstEvent: 10 * time.Millisecond}}})
	h.world.add("r1", step("a"))
	_, in := h.watch(t.Context(), "/v1/runs/r1/watch?after=1")
	for n := 0; n < 3; {
		if f := <-in; f.comment != "" {
			n++
		}
	}
	h.world.add("r1", completed())
	if f := next(t, in); f.id != "2" {
		t.Errorf("after the comments: %+v", f)
	}
}

func TestCase68_OneDataFrameAnEventWhateverItHolds(t *testing.T) {
	h := build(t, setup{})
	odd := "下单 1 台 iPhone 15 Pro 256G 黑色，寄到上海浦东 读✅ \u2028 \u2029 \u0085 \u0000 \r\n e\u0301 \u00e9"
	quoted, err := json.Marshal(odd)
	if err != nil {
		t.Fatal(err)
	}
	// As a client may send it: the line separators plainly, a lone surrogate escaped.
	text := strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(string(quoted))
	r := h.call("POST", "/v1/runs", `{"request_id":"u","spec":{"goal":`+text+`,"input":{"v":`+text+`,"e\u0301":1,"é":2,"lone":"\ud800"}}}`)
	if r.code != http.StatusOK {
		t.Fatalf("%d %s", r.code, r.body)
	}
	id := runID(defaultTenant, "u")
	h.world.add(id, completed())
	raw := h.call("GET", "/v1/runs/"+id+"/watch", "")
	if strings.ContainsAny(raw.body, "\u0085\u2028\u2029\r\x00") {
		t.Error("a character that a reader may take for the end of a line stands plainly")
	}
	in := frames(strings.NewReader(raw.body))
	f := next(t, in)
	if f.dataLines != 1 {
		t.Errorf("%d data lines", f.dataLines)
	}
	var e struct {
		RunSubmitted struct {
			Spec struct {
				Goal  string
				Input map[string]any
			}
		} `json:"run_submitted"`
	}
	if err := json.Unmarshal([]byte(f.data), &e); err != nil {
		t.Fatal(err)
	}
	input := e.RunSubmitted.Spec.Input
	if e.RunSubmitted.Spec.Goal != odd || input["v"] != odd {
		t.Errorf("goal %q, value %q", e.RunSubmitted.Spec.Goal, input["v"])
	}
	if len(input) != 4 || input["lone"] != "\ufffd" {
		t.Errorf("input %q: the keys in NFC and NFD stay two, the lone surrogate becomes U+FFFD", input)
	}
}

func TestWatchSurvivesARunStoreThatRestarts(t *testing.T) {
	h := build(t, setup{})
	for _, id := range []string{"a", "b", "c", "d"} {
		h.world.add("r1", step(id))
	}
	h.world.add("r1", completed())
	h.world.mu.Lock()
	h.world.drop = 3
	h.world.mu.Unlock()
	_, in := h.watch(t.Context(), "/v1/runs/r1/watch")
	var got []string
	for f := range in {
		if f.event != "" {
			got = append(got, f.id)
		}
	}
	if want := []string{"1", "2", "3", "4", "5"}; !slices.Equal(got, want) {
		t.Errorf("ids %q, want %q", got, want)
	}
	h.world.mu.Lock()
	h.world.drop = 2
	h.world.mu.Unlock()
	s, err := h.queries().WatchRun(t.Context(), &apiv1.WatchRunRequest{RunId: "r1", AfterRevision: 1})
	if err != nil {
		t.Fatal(err)
	}
	for want := int64(2); want <= 5; want++ {
		if r, err := s.Recv(); err != nil || r.GetEvent().GetRevision() != want {
			t.Fatalf("revision %d, %v; want %d", r.GetEvent().GetRevision(), err, want)
		}
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestDrainSendsWatchersAway(t *testing.T) {
	h := build(t, setup{config: Config{Times: Times{FirstEvent: 10 * time.Millisecond}}})
	h.world.add("r1", step("a"))
	_, in := h.watch(t.Context(), "/v1/runs/r1/watch")
	next(t, in)
	s, err := h.queries().WatchRun(t.Context(), &apiv1.WatchRunRequest{RunId: "r1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("draining took %s", d)
	}
	if f := next(t, in); f.event != "error" || f.id != "" || !strings.Contains(f.data, reasonDraining) {
		t.Errorf("server-sent events: %+v", f)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || reasonOf(err) != reasonDraining {
		t.Errorf("gRPC: %v", err)
	}
}

func TestWatchersAreCounted(t *testing.T) {
	h := build(t, setup{config: Config{Limits: Limits{MaxWatchers: 2}}})
	h.world.add("r1", step("a"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		_, in := h.watch(ctx, "/v1/runs/r1/watch")
		next(t, in)
	}
	r := h.call("GET", "/v1/runs/r1/watch", "")
	if f := r.failure(t); r.code != http.StatusTooManyRequests || f.reason() != reasonTooManyWatchers || !strings.Contains(f.Message, "max_watchers") {
		t.Errorf("third: %d %s", r.code, r.body)
	}
	s, err := h.queries().WatchRun(t.Context(), &apiv1.WatchRunRequest{RunId: "r1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("third over gRPC: %v", err)
	}
	cancel()
	eventually(t, 10*time.Second, "a place is free again", func() bool {
		resp, _ := h.watch(t.Context(), "/v1/runs/r1/watch")
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// stallingListener hands out connections without buffers, so that a peer that reads nothing is felt at once: the peer of
// a broken network, to whom no packet gets through and from whom no end comes.
type stallingListener struct {
	*branch
}

func (l stallingListener) dial() net.Conn {
	here, there := net.Pipe()
	l.give(there)
	return here
}

func TestCase66_WatchersThatVanishLeaveNothingBehind(t *testing.T) {
	const each = 50
	l := stallingListener{newBranch(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})}
	h := build(t, setup{listener: l, config: Config{Times: Times{
		Comment: 50 * time.Millisecond, FirstEvent: 10 * time.Millisecond, Write: 200 * time.Millisecond,
		Ping: time.Second, PingAnswer: 200 * time.Millisecond,
	}}})
	h.world.add("r1", step("a"))
	// One watcher of each kind before the count: what is made once is there then.
	open := func() (close func()) {
		http1 := l.dial()
		if _, err := io.WriteString(http1, "GET /v1/runs/r1/watch HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(http1).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return func() { _ = http1.Close() }
	}
	grpcOpen := func() (stall, close func()) {
		var conn *stallingConn
		cc, err := grpc.NewClient("passthrough:///pipe", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				conn = &stallingConn{Conn: l.dial(), stalled: make(chan struct{}), closed: make(chan struct{})}
				return conn, nil
			}), grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour}))
		if err != nil {
			t.Fatal(err)
		}
		s, err := apiv1.NewQueryServiceClient(cc).WatchRun(context.Background(), &apiv1.WatchRunRequest{RunId: "r1"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		return func() { close2(conn.stalled) }, func() { _, _ = conn.Close(), cc.Close() }
	}
	open()()
	_, closeGRPC := grpcOpen()
	closeGRPC()
	eventually(t, 10*time.Second, "no watch is open", func() bool { return h.world.openWatches() == 0 })
	base := runtime.NumGoroutine()

	// A get whose request is empty is dropped the same way.
	idle := l.dial()
	if _, err := io.WriteString(idle, "GET /v1/tools HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	var closers []func()
	for i := range each {
		closeHTTP := open()
		stallGRPC, closeGRPC := grpcOpen()
		if i%2 == 0 {
			// Vanished without a word: nothing is read, nothing is closed.
			stallGRPC()
			defer closeHTTP()
			defer closeGRPC()
			continue
		}
		closers = append(closers, closeHTTP, closeGRPC)
	}
	if n := h.world.openWatches(); n < each {
		t.Fatalf("%d watches are open; the test shows nothing", n)
	}
	for _, c := range closers {
		c()
	}
	eventually(t, 30*time.Second, "no watch is open", func() bool { return h.world.openWatches() == 0 })
	// The stalled gRPC clients of this test keep goroutines of their own: two each at most, and a reader of the pipe.
	_ = idle.Close()
	eventually(t, 30*time.Second, "goroutines are back", func() bool {
		return serverGoroutines() <= 10
	})
	t.Logf("goroutines: %d before, %d now, of the server %d", base, runtime.NumGoroutine(), serverGoroutines())
}

// serverGoroutines counts the goroutines that serve a connection or a watch.
func serverGoroutines() int {
	buf := make([]byte, 16<<20)
	n := 0
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		for _, mark := range []string{"gateway.(*gateway).follow(", "gateway.(*gateway).httpWatch(", "grpc.(*Server).serveStreams(", "http.(*conn).serve("} {
			if strings.Contains(g, mark) {
				n++
				break
			}
		}
	}
	return n
}

func close2(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// stallingConn stops reading and writing when it is told to, until it is closed.
type stallingConn struct {
	net.Conn
	stalled, closed chan struct{}
}

func (c *stallingConn) Read(p []byte) (int, error) {
	select {
	case <-c.stalled:
		<-c.closed
		return 0, io.EOF
	default:
		return c.Conn.Read(p)
	}
}

func (c *stallingConn) Write(p []byte) (int, error) {
	select {
	case <-c.stalled:
		<-c.closed
		return 0, io.EOF
	default:
		return c.Conn.Write(p)
	}
}

func (c *stallingConn) Close() error {
	close2(c.closed)
	return c.Conn.Close()
}
