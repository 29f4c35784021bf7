package gateway

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// endOf returns the status that an event ends its run with, UNSPECIFIED for all others.
func endOf(e *runv1.Event) runv1.RunStatus {
	switch e.GetBody().(type) {
	case *runv1.Event_RunCompleted:
		return runv1.RunStatus_RUN_STATUS_COMPLETED
	case *runv1.Event_RunFailed:
		return runv1.RunStatus_RUN_STATUS_FAILED
	case *runv1.Event_RunCancelled:
		return runv1.RunStatus_RUN_STATUS_CANCELLED
	}
	return runv1.RunStatus_RUN_STATUS_UNSPECIFIED
}

func ended(s runv1.RunStatus) bool {
	return s == runv1.RunStatus_RUN_STATUS_COMPLETED || s == runv1.RunStatus_RUN_STATUS_FAILED || s == runv1.RunStatus_RUN_STATUS_CANCELLED
}

func statusName(s runv1.RunStatus) (string, bool) {
	d := s.Descriptor().Values().ByNumber(s.Number())
	if d == nil || s == runv1.RunStatus_RUN_STATUS_UNSPECIFIED {
		return "", false
	}
	return exactjson.ShortName(d), true
}

const (
	firstFollowPause = 50 * time.Millisecond
	maxFollowPause   = time.Second
)

// follow calls fn with each event after a revision, in order, none twice and none left out, until the run has ended. A
// run store that goes away and comes back within the store's time is not noticed; else its error is returned. It returns
// nil when the run has ended, the context's error, or that of fn.
func (g *gateway) follow(ctx context.Context, r *apiv1.WatchRunRequest, fn func(*runv1.Event) error) error {
	ctx, stop := g.untilDrain(ctx)
	defer stop()
	last, pause := r.GetAfterRevision(), firstFollowPause
	var away time.Time
	for {
		before := last
		err := g.followOnce(ctx, r, &last, fn)
		var own *ownError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &own):
			return own.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case status.Code(err) != codes.Unavailable:
			return err
		}
		if last > before {
			away, pause = time.Time{}, firstFollowPause
		}
		if away.IsZero() {
			away = time.Now()
		}
		if time.Since(away) > g.times.Store {
			return g.storeProblem(err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		pause = min(2*pause, maxFollowPause)
	}
}

// ownError marks an error of the caller's function, which is no reason to ask the run store again.
type ownError struct{ err error }

func (e *ownError) Error() string { return e.err.Error() }

func (g *gateway) followOnce(ctx context.Context, r *apiv1.WatchRunRequest, last *int64, fn func(*runv1.Event) error) error {
	ctx, cancel := context.WithCancel(g.toStore(ctx))
	defer cancel()
	stream, err := g.store.WatchRun(ctx, &apiv1.WatchRunRequest{RunId: r.GetRunId(), AfterRevision: *last, Position: r.GetPosition()})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		e := resp.GetEvent()
		switch {
		case e.GetRevision() <= *last:
			continue
		case e.GetRevision() > *last+1:
			// Revisions are dense; asking again from the last one fills the gap.
			return status.Errorf(codes.Unavailable, "the run store left out revision %d of run %s", *last+1, r.GetRunId())
		}
		err = own(ctx, e.GetTenant())
		if err == nil {
			err = fn(e)
		}
		if err != nil {
			return &ownError{err}
		}
		*last = e.GetRevision()
		if endOf(e) != runv1.RunStatus_RUN_STATUS_UNSPECIFIED {
			return nil
		}
	}
}

// watching counts a watcher in, or refuses it.
func (g *gateway) watching() (done func(), err error) {
	if n := g.watchers.Add(1); int(n) > g.limits.MaxWatchers {
		g.watchers.Add(-1)
		p := newProblem(codes.ResourceExhausted, reasonTooManyWatchers, "%d watchers are connected, the limit max_watchers; try another gateway or later", g.limits.MaxWatchers)
		p.retry = retryPause
		return nil, p
	}
	return func() { g.watchers.Add(-1) }, nil
}
