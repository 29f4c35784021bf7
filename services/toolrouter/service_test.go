package toolrouter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
	"github.com/cairnrun/cairn/services/toolrouter"
)

func number(pattern string, n int) string { return strings.ReplaceAll(pattern, "%", fmt.Sprint(n)) }

// Start-up order does not matter: both services are there before the streams, and create none.
func TestRouterAndToolsWaitForTheStreams(t *testing.T) {
	w := newWorld(t, false)
	health := telemetry.NewHealth("toolrouter")
	config := toolrouter.Config{Bus: w.server.Bus("toolrouter"), Health: health, Logger: testLogger(t)}
	background(t, func(ctx context.Context) error { return toolrouter.Run(ctx, config) })
	states := make(chan error, 64)
	c, ready := w.toolConfig()
	told := c.OnReady
	c.RetryWait = 50 * time.Millisecond
	c.OnReady = func(err error) { told(err); states <- err }
	background(t, func(ctx context.Context) error { return tool.Serve(ctx, c, echo()) })

	w.eventually("the router names what is missing", func() bool {
		err := health.Err()
		return err != nil && strings.Contains(err.Error(), bus.StreamLog) && strings.Contains(err.Error(), "cairn init")
	})
	for {
		err := wait(t, states, "the tool service says what is missing")
		if err != nil && strings.Contains(err.Error(), bus.BucketTools) && strings.Contains(err.Error(), "cairn init") {
			break
		}
	}
	for name := range w.js.StreamNames(t.Context()).Name() {
		t.Errorf("stream %s was created by a service", name)
	}
	w.init()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, health.Wait(ctx))
	wait(t, ready, "the tool service is ready")
	success(t, w.do(call(runID(1), "s-1", "echo", "{}")))
}

// Two routers and two tool instances share the work; what one has in hand when it ends is not lost.
func TestInstancesShareTheWorkAndLoseNothing(t *testing.T) {
	w := withStreams(t)
	stop := w.router(nil)
	w.router(nil)
	stopTool := w.serve(nil, echo())
	w.serve(nil, echo())
	const n = 200
	for i := range n {
		w.send(call(runID(i), "s-1", "echo", number(`{"i":%}`, i)))
		if i == n/2 {
			stop()
			stopTool()
		}
	}
	seen := map[string]string{}
	for len(seen) < n {
		r := wait(t, w.reports, "all results")
		seen[r.GetRunId()] = success(t, r.GetResultReported().GetObservation())
	}
	for i := range n {
		if seen[runID(i)] != number(`{"i":%}`, i) {
			t.Errorf("run %d: %s", i, seen[runID(i)])
		}
	}
	w.empty(bus.StreamWork)
	w.empty(tool.StreamActions)
	w.empty(bus.StreamResults)
}

func TestServeDrains(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	started, release := make(chan struct{}), make(chan struct{})
	stop := w.serve(nil, tool.New("slow", func(context.Context, struct{}) (string, error) {
		close(started)
		<-release
		return "finished", nil
	}, tool.Idempotent()))
	w.send(call(runID(1), "s-1", "slow", "{}"))
	wait(t, started, "the call begins")
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	close(release)
	wait(t, ended, "the service ends")
	if got := success(t, w.report(runID(1), "s-1")); got != `"finished"` {
		t.Errorf("output %s", got)
	}
	w.empty(tool.StreamActions)
}

// A call that does not end with the drain is put back, if a repeat does no harm, and goes to another instance.
func TestServeStopsCallsAfterTheDrainTimeout(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	started := make(chan string, 2)
	hang := func(ctx context.Context, _ struct{}) (string, error) {
		started <- tool.Action(ctx).Tool
		<-ctx.Done()
		return "", ctx.Err()
	}
	stop := w.serve(func(c *tool.Config) { c.DrainTimeout = 50 * time.Millisecond }, tool.New("hang", hang, tool.Idempotent()), tool.New("hang.once", hang))
	w.send(call(runID(1), "s-1", "hang", "{}"))
	w.send(notIdempotent(call(runID(2), "s-1", "hang.once", "{}")))
	wait(t, started, "the first call")
	wait(t, started, "the second call")
	stop()
	failure(t, w.report(runID(2), "s-1"), tool.CodeUnknownOutcome)
	w.serve(nil, tool.New("hang", func(context.Context, struct{}) (string, error) { return "elsewhere", nil }, tool.Idempotent()))
	if got := success(t, w.report(runID(1), "s-1")); got != `"elsewhere"` {
		t.Errorf("output %s", got)
	}
}

func TestDefinitionsAreRegisteredByCompareAndSwap(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	kv, err := w.js.KeyValue(t.Context(), tool.BucketTools)
	must(t, err)
	stored := func() (*planv1.ToolDefinition, uint64) {
		e, err := kv.Get(t.Context(), "echo")
		must(t, err)
		def := &planv1.ToolDefinition{}
		must(t, exactjson.Unmarshal(e.Value(), def))
		return def, e.Revision()
	}
	version := func(v string) *tool.Tool {
		return tool.New("echo", func(context.Context, struct{}) (string, error) { return v, nil }, tool.Version(v), tool.Timeout(90*time.Second), tool.Risk("low"), tool.Idempotent())
	}
	w.serve(nil, version("1.9.0"))()
	def, first := stored()
	if def.GetVersion() != "1.9.0" || def.GetTimeout().AsDuration() != 90*time.Second || def.GetRisk() != planv1.Risk_RISK_LOW || len(def.GetDigest()) != 64 {
		t.Errorf("definition %v", def)
	}
	w.serve(nil, version("1.9.0"))()
	if _, again := stored(); again != first {
		t.Error("the same definition was written again")
	}
	w.serve(nil, version("1.10.0"))()
	if def, _ := stored(); def.GetVersion() != "1.10.0" {
		t.Errorf("version %s after an update", def.GetVersion())
	}
	w.serve(nil, version("1.9.0"))()
	if def, _ := stored(); def.GetVersion() != "1.10.0" {
		t.Error("an older version replaced a newer one")
	}
	// The digest of the SDK is the router's: nobody rewrites the entry.
	_, before := stored()
	failure(t, w.do(call(runID(1), "s-1", "unrelated", "{}")), tool.CodeUnknownTool)
	if _, after := stored(); after != before {
		t.Error("the router rewrote a definition that was right")
	}
}

func TestTheRouterFillsInDigests(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	kv, err := w.js.KeyValue(t.Context(), tool.BucketTools)
	must(t, err)
	_, err = kv.Put(t.Context(), "plain", []byte(`{"name":"plain", "version":"1", "timeout":"1m30s", "idempotent":false, "risk":"low", "input_schema":{"required":["x"]}}`))
	must(t, err)
	want := ""
	w.eventually("the digest is there", func() bool {
		e, err := kv.Get(t.Context(), "plain")
		must(t, err)
		def := &planv1.ToolDefinition{}
		must(t, exactjson.Unmarshal(e.Value(), def))
		want, err = tool.DefinitionDigest([]byte(`{"risk":"low","name":"plain","version":"1","input_schema":{"required":["x"]},"timeout":"90s"}`))
		must(t, err)
		return def.GetDigest() == want
	})
	// An unusable one is not served.
	_, err = kv.Put(t.Context(), "odd", []byte(`{"name":"odd","version":"1","colour":"red"}`))
	must(t, err)
	failure(t, w.do(call(runID(1), "s-1", "odd", "{}")), tool.CodeUnknownTool)
	// A deleted one neither.
	must(t, kv.Delete(t.Context(), "plain"))
	w.eventually("the tool is gone", func() bool {
		o := w.do(call(w.newRun(), "s-1", "plain", "{}"))
		return o.GetError().GetCode() == tool.CodeUnknownTool
	})
}

func TestServeRefusesWhatCannotGetBetter(t *testing.T) {
	fn := func(context.Context, struct{}) (string, error) { return "", nil }
	for want, tools := range map[string][]*tool.Tool{
		"no tools":      nil,
		"tool name":     {tool.New("Bad-Name", fn)},
		"given twice":   {tool.New("a", fn), tool.New("a", fn)},
		"risk":          {tool.New("a", fn, tool.Risk("enormous"))},
		"is an object":  {tool.New("a", fn, tool.InputSchema(`[1]`))},
		"type objekt":   {tool.New("a", fn, tool.InputSchema(`{"type":"objekt"}`))},
		"output schema": {tool.New("a", fn, tool.OutputSchema(`{"type":["string","objekt"]}`))},
		"concurrency":   {tool.New("a", fn, tool.Concurrency(0))},
		"not an object": {tool.New("a", func(context.Context, string) (string, error) { return "", nil })},
	} {
		if err := tool.Serve(t.Context(), tool.Config{}, tools...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestHealthOverHTTP(t *testing.T) {
	w := newWorld(t, false)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	c, ready := w.toolConfig()
	c.HealthAddr, c.RetryWait = addr, 20*time.Millisecond
	background(t, func(ctx context.Context) error { return tool.Serve(ctx, c, echo()) })
	status := func(path string) int {
		resp, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	w.eventually("it lives", func() bool { return status("/livez") == http.StatusOK })
	if got := status("/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("ready without streams: %d", got)
	}
	w.init()
	wait(t, ready, "the tool service is ready")
	if got := status("/readyz"); got != http.StatusOK {
		t.Errorf("not ready: %d", got)
	}
	if err := tool.Serve(t.Context(), c, echo()); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("a taken address: %v", err)
	}
}

func TestConcurrencyIsALimit(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	var mu sync.Mutex
	now, most := 0, 0
	both := make(chan struct{})
	w.serve(nil, tool.New("busy", func(ctx context.Context, _ struct{}) (string, error) {
		mu.Lock()
		now++
		most = max(most, now)
		if now == 2 {
			select {
			case <-both:
			default:
				close(both)
			}
		}
		mu.Unlock()
		select {
		case <-both:
		case <-ctx.Done():
			return "", errors.New("two calls never ran at once")
		}
		mu.Lock()
		now--
		mu.Unlock()
		return "", nil
	}, tool.Idempotent(), tool.Concurrency(2)))
	for i := range 10 {
		w.send(call(runID(i), "s-1", "busy", "{}"))
	}
	for range 10 {
		success(t, wait(t, w.reports, "all ten").GetResultReported().GetObservation())
	}
	if most != 2 {
		t.Errorf("%d calls ran at once", most)
	}
}

// The consumer is what docs/tools.md says, so that instances in other languages can share it.
func TestTheConsumerIsAsDocumented(t *testing.T) {
	w := withStreams(t)
	w.serve(nil, tool.New("stock.check", func(context.Context, struct{}) (string, error) { return "", nil }))
	cons, err := w.js.Consumer(t.Context(), tool.StreamActions, "tool-stock-check")
	must(t, err)
	c := cons.CachedInfo().Config
	if c.FilterSubject != "cairn.action.*.*.stock.check" || c.AckPolicy != jetstream.AckExplicitPolicy || c.AckWait != 5*time.Second || c.MaxDeliver != 5 || c.MaxAckPending != 1000 {
		t.Errorf("consumer %+v", c)
	}
}
