package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func TestExitCodes(t *testing.T) {
	busy, err := status.New(codes.ResourceExhausted, "too many watchers").WithDetails(&errdetails.RetryInfo{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitCompleted},
		{errors.New("anything"), exitFailed},
		{badInputf("x"), exitBadInput},
		{fmt.Errorf("wrapped: %w", badInputf("x")), exitBadInput},
		{client.ErrUnavailable, exitUnavailable},
		{context.Canceled, exitInterrupted},
		{status.Error(codes.InvalidArgument, ""), exitBadInput},
		{status.Error(codes.NotFound, ""), exitBadInput},
		{status.Error(codes.AlreadyExists, ""), exitBadInput},
		{status.Error(codes.FailedPrecondition, ""), exitBadInput},
		{status.Error(codes.ResourceExhausted, "too large"), exitBadInput},
		{busy.Err(), exitUnavailable},
		{status.Error(codes.Unavailable, ""), exitUnavailable},
		{status.Error(codes.DeadlineExceeded, ""), exitUnavailable},
		{status.Error(codes.Canceled, ""), exitInterrupted},
		{status.Error(codes.Internal, ""), exitFailed},
		{ended(&runv1.Event{Body: &runv1.Event_RunCompleted{RunCompleted: &runv1.RunCompleted{}}}), exitCompleted},
		{ended(&runv1.Event{Body: &runv1.Event_RunFailed{RunFailed: &runv1.RunFailed{}}}), exitFailed},
		{ended(&runv1.Event{Body: &runv1.Event_RunCancelled{RunCancelled: &runv1.RunCancelled{}}}), exitCancelled},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestErrorsNameEachFieldThatIsWrong(t *testing.T) {
	s, err := status.New(codes.InvalidArgument, "the request is refused").WithDetails(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: "spec.labels[0].key", Description: "it is empty"}, {Field: "request_id", Description: "it has a space"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := "the request is refused\n  spec.labels[0].key: it is empty\n  request_id: it has a space"
	if got := errorText(s.Err()); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// deaf is a server that takes a cancel and never ends the run.
type deaf struct {
	apiv1.RunServiceClient
	apiv1.QueryServiceClient
	cancelled chan string
}

func (d deaf) CancelRun(_ context.Context, r *apiv1.CancelRunRequest, _ ...grpc.CallOption) (*apiv1.CancelRunResponse, error) {
	d.cancelled <- r.GetRunId()
	return &apiv1.CancelRunResponse{}, nil
}

func (d deaf) WatchRun(ctx context.Context, _ *apiv1.WatchRunRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[apiv1.WatchRunResponse], error) {
	return silent{ctx: ctx}, nil
}

type silent struct {
	grpc.ServerStreamingClient[apiv1.WatchRunResponse]
	ctx context.Context
}

func (s silent) Recv() (*apiv1.WatchRunResponse, error) {
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

func TestTheSecondInterruptLeavesAtOnce(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: io.Discard, err: &out, output: outputText}
	server := deaf{cancelled: make(chan string, 1)}
	in := &interrupts{first: make(chan struct{}), second: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		done <- a.followCancelling(t.Context(), &client.Client{Runs: server, Query: server}, &apiv1.SubmitRunResponse{RunId: "r1"}, in, nil, nil)
	}()
	close(in.first)
	if id := <-server.cancelled; id != "r1" {
		t.Errorf("cancelled %s", id)
	}
	select {
	case err := <-done:
		t.Fatalf("ended after the first interrupt: %v", err)
	default:
	}
	close(in.second)
	err := <-done
	if exitCode(err) != exitInterrupted || !strings.Contains(err.Error(), "left run r1 before it ended") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
}

// hasty ends the run before it answers the cancel.
type hasty struct {
	apiv1.RunServiceClient
	apiv1.QueryServiceClient
	cancelled chan struct{}
}

func (h hasty) CancelRun(ctx context.Context, _ *apiv1.CancelRunRequest, _ ...grpc.CallOption) (*apiv1.CancelRunResponse, error) {
	close(h.cancelled)
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func (h hasty) WatchRun(context.Context, *apiv1.WatchRunRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[apiv1.WatchRunResponse], error) {
	return oneEvent{cancelled: h.cancelled}, nil
}

type oneEvent struct {
	grpc.ServerStreamingClient[apiv1.WatchRunResponse]
	cancelled chan struct{}
}

func (s oneEvent) Recv() (*apiv1.WatchRunResponse, error) {
	<-s.cancelled
	return &apiv1.WatchRunResponse{Event: &runv1.Event{RunId: "r1", Revision: 1, Body: &runv1.Event_RunCancelled{RunCancelled: &runv1.RunCancelled{}}}}, nil
}

func TestARunThatEndsBeforeTheCancelIsAnsweredEndsQuietly(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: io.Discard, err: &out, output: outputText}
	server := hasty{cancelled: make(chan struct{})}
	in := &interrupts{first: make(chan struct{}), second: make(chan struct{})}
	close(in.first)
	err := a.followCancelling(t.Context(), &client.Client{Runs: server, Query: server}, &apiv1.SubmitRunResponse{RunId: "r1"}, in, nil, nil)
	if exitCode(err) != exitCancelled || strings.Contains(out.String(), "cairn:") {
		t.Errorf("exit code %d, said:\n%s", exitCode(err), out.String())
	}
}

func TestCommandsToCopyReachTheSame(t *testing.T) {
	for _, c := range []struct {
		where client.Options
		want  string
	}{
		{client.Options{}, "why r1"},
		{client.Options{Dir: "my runs"}, "why r1 --dir 'my runs'"},
		{client.Options{Dir: ".cairn", Server: "h:1"}, "why r1 --server h:1"},
	} {
		if got := (&app{where: c.where}).command("why", "r1"); !strings.HasSuffix(got, " "+c.want) {
			t.Errorf("%+v: %s, want %s", c.where, got, c.want)
		}
	}
	if got := quoted("it's"); got != `'it'\''s'` {
		t.Errorf("quoted: %s", got)
	}
}
