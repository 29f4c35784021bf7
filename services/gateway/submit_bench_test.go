package gateway

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// instant is an owner that answers without a bus, so that the gateway itself is what is measured.
type instant struct{}

func (instant) Ask(_ context.Context, r *runv1.Report) (*runv1.Answer, error) {
	return &runv1.Answer{RunId: r.GetRunId(), Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_ACCEPTED, Revision: 1}, nil
}

// BenchmarkSubmit is what the gateway adds to a submission over gRPC.
func BenchmarkSubmit(b *testing.B) {
	s, err := embedded.Start(b.Context(), embedded.Config{Dir: b.TempDir(), NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	nc, js, err := bus.Connect(s.Bus("bench"))
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	c := Config{}.withDefaults()
	g := &gateway{log: c.Logger, limits: c.Limits, times: c.Times, nc: nc, js: js}
	g.serving = health.NewServer()
	g.state.Store(&readiness{reporter: instant{}})
	g.runs, g.queries, g.tools = &runService{g: g}, &queryService{g: g}, &toolService{g: g}
	ln, err := listen(b.Context(), "127.0.0.1:0", time.Second, time.Second)
	if err != nil {
		b.Fatal(err)
	}
	split := split(ln, c.Times.Body)
	gs := g.grpcServer()
	go func() { _ = split.serve() }()
	go func() { _ = gs.Serve(split.grpc) }()
	defer gs.Stop()
	defer ln.Close()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	client := apiv1.NewRunServiceClient(conn)
	var n atomic.Int64
	b.SetParallelism(128)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := &apiv1.SubmitRunRequest{RequestId: "k" + strconv.FormatInt(n.Add(1), 10), Spec: goal("g")}
			if _, err := client.SubmitRun(b.Context(), r); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
