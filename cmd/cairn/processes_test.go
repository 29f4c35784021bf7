package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/examples/order"
	"github.com/cairnrun/cairn/pkg/tool"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Services start before NATS is there, and before it has streams, in any order; they say what is missing, are alive and
// not ready, create nothing, and go on when it is there.
func TestServicesWaitForWhatIsMissing(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	url := "nats://" + address
	store := freeAddress(t)
	all := []*process{
		start(t, "gateway", "--nats", url, "--listen", freeAddress(t), "--runstore", store),
		start(t, "executor", "--nats", url),
		start(t, "toolrouter", "--nats", url),
		start(t, "planner", "--nats", url),
		start(t, "runstore", "--nats", url, "--listen", store, "--db", filepath.Join(t.TempDir(), "runs.db")),
	}
	for _, p := range all {
		until(t, p.name+" says that NATS is missing", func() bool {
			_, body := p.get("/readyz")
			return strings.Contains(body, url) && strings.Contains(body, "is not reached") && strings.Contains(p.log.String(), "is not reached")
		})
	}
	natsServerAt(t, address)
	for _, p := range all {
		until(t, p.name+" says what is missing", func() bool {
			_, body := p.get("/readyz")
			return strings.Contains(body, "missing stream") && strings.Contains(body, "cairn init") && strings.Contains(p.log.String(), "missing stream")
		})
		if code, _ := p.get("/livez"); code != http.StatusOK {
			t.Errorf("%s is not alive", p.name)
		}
		if code, _ := p.get("/readyz"); code != http.StatusServiceUnavailable {
			t.Errorf("%s is ready without streams", p.name)
		}
	}
	cairn(t, "init", "--nats", url)
	again := exec.CommandContext(t.Context(), "cairn", "init", "--nats", url, "--partitions", "8")
	if out, _ := again.CombinedOutput(); again.ProcessState.ExitCode() != exitBadInput || !strings.Contains(string(out), "the log has 4, fixed when it was created") {
		t.Errorf("init with another number of partitions: exit code %d\n%s", again.ProcessState.ExitCode(), out)
	}
	for _, p := range all {
		p.ready()
	}
	for _, p := range all {
		if code := p.terminate(); code != 0 {
			t.Errorf("%s ended with %d after SIGTERM:\n%s", p.name, code, p.log)
		}
	}
}

// Two executors and two tool routers share the work. One of each is killed in the middle: every run ends, and every
// order is paid exactly once.
func TestKilledServicesLoseNothing(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	cairn(t, "init", "--nats", url)
	door, store := freeAddress(t), freeAddress(t)
	templates := filepath.Join("..", "..", "examples", "order-templates.yaml")
	start(t, "gateway", "--nats", url, "--listen", door, "--runstore", store).ready()
	start(t, "runstore", "--nats", url, "--listen", store, "--db", filepath.Join(t.TempDir(), "runs.db")).ready()
	start(t, "planner", "--nats", url, "--templates", templates).ready()
	executors := []*process{start(t, "executor", "--nats", url), start(t, "executor", "--nats", url)}
	routers := []*process{start(t, "toolrouter", "--nats", url), start(t, "toolrouter", "--nats", url)}
	for _, p := range append(executors, routers...) {
		p.ready()
	}
	shop := &order.Shop{Delay: 20 * time.Millisecond}
	ready := make(chan struct{}, 1)
	go func() {
		_ = tool.Serve(t.Context(), tool.Config{URL: url, Logger: slog.New(slog.DiscardHandler), OnReady: func(err error) {
			if err == nil {
				select {
				case ready <- struct{}{}:
				default:
				}
			}
		}}, shop.Tools()...)
	}()
	<-ready

	cl, err := client.Connect(t.Context(), client.Options{Server: door})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	const runs = 24
	var ids []string
	for i := range runs {
		stock := i % 2 // Every second run is replanned.
		resp, err := cl.Runs.SubmitRun(t.Context(), &apiv1.SubmitRunRequest{RequestId: fmt.Sprintf("order-%d", i), Spec: &runv1.RunSpec{
			Goal: "Order 1 iPhone 15 Pro 256G black, ship to Shanghai", Input: &planv1.JsonText{Text: fmt.Sprintf(`{"stock_256":%d,"stock_128":4}`, stock)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, resp.GetRunId())
	}
	until(t, "work is under way", func() bool { return len(shop.Charges()) > 0 || shop.Calls()["price.compute"] > 0 })
	executors[0].kill()
	routers[0].kill()
	for _, id := range ids {
		until(t, "run "+id+" ends", func() bool {
			s, err := cl.Query.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: id})
			return err == nil && s.GetRun().GetPhase() == runv1.RunPhase_RUN_PHASE_ENDED
		})
		s, err := cl.Query.GetRun(t.Context(), &apiv1.GetRunRequest{RunId: id})
		if err != nil {
			t.Fatal(err)
		}
		if s.GetRun().GetStatus() != runv1.RunStatus_RUN_STATUS_COMPLETED {
			t.Errorf("run %s is %s: %v", id, s.GetRun().GetStatus(), s.GetRun().GetError())
		}
		v, err := cl.Query.ReplayRun(t.Context(), &apiv1.ReplayRunRequest{RunId: id, Verify: true})
		if err != nil || v.GetDifference() != nil {
			t.Errorf("replay of %s: %v, %v", id, v.GetDifference(), err)
		}
	}
	paid := map[string]int{}
	for _, c := range shop.Charges() {
		paid[c.OrderID]++
	}
	for o, n := range paid {
		if n != 1 {
			t.Errorf("order %s was paid %d times", o, n)
		}
	}
	if len(paid) != runs {
		t.Errorf("%d orders are paid, want %d", len(paid), runs)
	}
}
