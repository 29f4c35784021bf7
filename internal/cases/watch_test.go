package cases

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

// A thousand watchers over HTTP and gRPC that go away, some with a reset, leave no goroutine behind. It runs alone: the count
// is of the process.
func TestCase66_AThousandWatchersLeaveNothingBehind(t *testing.T) {
	const each = 500
	h := shared.plan(t, `{"goal":"g","steps":[`+hold+`]}`)
	h.until(asked("hold"))
	watchHTTP := func() (leave func()) {
		conn, err := net.Dial("tcp", shared.dev.Gateway())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("GET /v1/runs/" + h.id + "/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(conn)
		for line := ""; line != "data: "; {
			text, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			line = text[:min(6, len(text))]
		}
		return func() {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
	watchGRPC := func(conn *grpc.ClientConn) (leave func()) {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := apiv1.NewQueryServiceClient(conn).WatchRun(ctx, &apiv1.WatchRunRequest{RunId: h.id})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		return cancel
	}
	dial := func() *grpc.ClientConn {
		conn, err := grpc.NewClient("passthrough:///"+shared.dev.Gateway(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	// What is made once is there before the count.
	watchHTTP()()
	conn := dial()
	watchGRPC(conn)()
	_ = conn.Close()
	shared.get(t, "/v1/tools")
	http.DefaultClient.CloseIdleConnections()
	base := 0
	eventually(t, "the number of goroutines is steady", func() bool {
		before := base
		base = runtime.NumGoroutine()
		return base == before
	})
	conn = dial()
	var leave []func()
	for i := range each {
		leave = append(leave, watchHTTP(), watchGRPC(conn))
		if i%50 == 0 {
			// A question whose request is empty, and whose asker goes away.
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _, _ = apiv1.NewToolServiceClient(conn).ListTools(ctx, &apiv1.ListToolsRequest{}) }()
			cancel()
		}
	}
	if n := runtime.NumGoroutine(); n < base+2*each {
		t.Fatalf("%d goroutines with %d watchers, %d before: the count shows nothing", n, 2*each, base)
	}
	for _, f := range leave {
		f()
	}
	_ = conn.Close()
	eventually(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= base+10 })
	h.answer("input-1", "true")
	h.completed()
}
