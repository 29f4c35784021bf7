package dev

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cairnrun/cairn/examples/order"
	"github.com/cairnrun/cairn/pkg/tool"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// shopOf is the whole of Cairn with the order example's tools and templates.
func shopOf(t *testing.T) (*order.Shop, *Dev, *grpc.ClientConn) {
	t.Helper()
	shop := &order.Shop{}
	d, err := Start(t.Context(), Config{
		Dir: t.TempDir(), NoSync: true, Templates: filepath.Join("..", "..", "examples", "order-templates.yaml"),
		Tools: map[string][]*tool.Tool{"demo/order": shop.Tools()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	conn, err := grpc.NewClient("passthrough:///"+d.Gateway(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return shop, d, conn
}

// runToEnd submits and returns every event.
func runToEnd(t *testing.T, conn *grpc.ClientConn, spec *runv1.RunSpec) (string, []*runv1.Event) {
	t.Helper()
	resp, err := apiv1.NewRunServiceClient(conn).SubmitRun(t.Context(), &apiv1.SubmitRunRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := apiv1.NewQueryServiceClient(conn).WatchRun(t.Context(), &apiv1.WatchRunRequest{RunId: resp.GetRunId(), Position: resp.GetPosition()})
	if err != nil {
		t.Fatal(err)
	}
	var events []*runv1.Event
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatalf("watch after %d events: %v", len(events), err)
		}
		events = append(events, m.GetEvent())
		if e := m.GetEvent(); e.GetRunCompleted() != nil || e.GetRunFailed() != nil || e.GetRunCancelled() != nil {
			return resp.GetRunId(), events
		}
	}
}

func TestOrders(t *testing.T) {
	shop, _, conn := shopOf(t)
	for name, c := range map[string]struct {
		goal    string
		have256 int
		have128 int
		replans int
		answer  []string
		paid    string
	}{
		"all goes well": {
			goal: "下单 1 台 iPhone 15 Pro 256G 黑色，寄到上海浦东", have256: 2, have128: 4,
			answer: []string{"已下单 iPhone 15 Pro 256G", "9011.00"}, paid: "9011.00",
		},
		"in English": {
			goal: "Order 2 iPhone 15 Pro 256G black, ship to New York", have256: 2, have128: 4,
			answer: []string{"iPhone 15 Pro 256G ordered", "18023.00"}, paid: "18023.00",
		},
		"256G is out of stock": {
			goal: "下单 1 台 iPhone 15 Pro 256G 黑色，寄到上海浦东", have256: 0, have128: 4, replans: 1,
			answer: []string{"已下单 iPhone 15 Pro 128G", "8011.00"}, paid: "8011.00",
		},
		"nothing is in stock": {
			goal: "Order 1 iPhone 15 Pro 256G black, ship to Shanghai", have256: 0, have128: 0, replans: 2,
			answer: []string{"iPhone 15 Pro"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(shop.Charges())
			id, events := runToEnd(t, conn, &runv1.RunSpec{Goal: c.goal, Input: &planv1.JsonText{Text: fmt.Sprintf(`{"stock_256":%d,"stock_128":%d}`, c.have256, c.have128)}})
			last := events[len(events)-1]
			for _, want := range c.answer {
				if !strings.Contains(last.GetRunCompleted().GetAnswer().GetText(), want) {
					t.Errorf("run %s ended with %v, want an answer with %q", id, last, want)
				}
			}
			var paid []string
			for _, p := range shop.Charges()[before:] {
				paid = append(paid, p.Amount)
			}
			if c.paid == "" && len(paid) > 0 || c.paid != "" && !slices.Equal(paid, []string{c.paid}) {
				t.Errorf("paid %v, want %q once", paid, c.paid)
			}
			replans, requested := 0, map[string]int{}
			for _, e := range events {
				if e.GetReplanRequested() != nil {
					replans++
				}
				if a := e.GetActionRequested(); a != nil {
					requested[a.GetStepId()]++
				}
			}
			if replans != c.replans {
				t.Errorf("%d replans, want %d", replans, c.replans)
			}
			// What was done before the replan is kept: parsing and the delivery's quote are asked for once.
			if requested["parse"] != 1 || requested["delivery"] != 1 {
				t.Errorf("actions requested: %v", requested)
			}
			v, err := apiv1.NewQueryServiceClient(conn).ReplayRun(t.Context(), &apiv1.ReplayRunRequest{RunId: id, Verify: true})
			if err != nil || v.GetDifference() != nil {
				t.Errorf("replay: %v, %v", v.GetDifference(), err)
			}
		})
	}
}
