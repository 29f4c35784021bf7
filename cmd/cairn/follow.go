package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// screen shows a run while it goes on.
type screen interface {
	// event is called once for each event, in order.
	event(e *runv1.Event) error
	// tick is called several times a second.
	tick() error
	close()
}

// retryFor is how long a lost connection to a server is tried again.
const retryFor = 30 * time.Second

// watchBuffer is how many events may wait to be shown.
const watchBuffer = 256

// follow shows a run from a revision on until it ends, and returns the view of it. A lost connection goes on where it
// stopped.
func (a *app) follow(ctx context.Context, c *client.Client, runID string, after int64, at *apiv1.LogPosition, s func(*render.View) screen) (*render.View, error) {
	view := render.NewView(runID)
	view.Command = a.command
	show := s(view)
	defer show.close()
	if after > 0 {
		// What was before is not shown, but the drawing needs it.
		if err := a.earlier(ctx, c, view, after); err != nil {
			return nil, err
		}
		if n := view.State().GetRevision(); n < after {
			return nil, badInputf("--after %d: run %s has %d events so far", after, runID, n)
		}
		if view.Ended() != nil {
			return view, show.tick()
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *runv1.Event, watchBuffer)
	done := make(chan error, 1)
	go func() { done <- watch(ctx, c, runID, after, at, events) }()
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case e := <-events:
			view.Add(e)
			if err := show.event(e); err != nil {
				return nil, err
			}
			if view.Ended() != nil {
				return view, show.tick()
			}
		case <-ticks.C:
			if err := show.tick(); err != nil {
				return nil, err
			}
		case err := <-done:
			if len(events) == 0 {
				if err == nil {
					err = unavailable(fmt.Errorf("the server ended the watch of run %s before the run ended", runID))
				}
				return nil, err
			}
			done <- err
		}
	}
}

func (a *app) earlier(ctx context.Context, c *client.Client, view *render.View, until int64) error {
	return eachEvent(ctx, c, view.RunID(), 0, func(e *runv1.Event) (bool, error) {
		if e.GetRevision() <= until {
			view.Add(e)
		}
		return e.GetRevision() < until, nil
	})
}

// watch sends a run's events until ctx ends or the run has ended.
func watch(ctx context.Context, c *client.Client, runID string, after int64, at *apiv1.LogPosition, events chan<- *runv1.Event) error {
	lost := time.Time{}
	for {
		err := watchOnce(ctx, c, runID, &after, at, events)
		if err == nil || ctx.Err() != nil || status.Code(err) != codes.Unavailable {
			return err
		}
		if lost.IsZero() {
			lost = time.Now()
		} else if time.Since(lost) > retryFor {
			return unavailable(fmt.Errorf("run %s goes on, but the server has not answered for %s: %w", runID, retryFor, err))
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func watchOnce(ctx context.Context, c *client.Client, runID string, after *int64, at *apiv1.LogPosition, events chan<- *runv1.Event) error {
	stream, err := c.Query.WatchRun(ctx, &apiv1.WatchRunRequest{RunId: runID, AfterRevision: *after, Position: at})
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case events <- m.GetEvent():
			*after = m.GetEvent().GetRevision()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// eachEvent calls fn for a run's events after a revision, until it says false.
func eachEvent(ctx context.Context, c *client.Client, runID string, after int64, fn func(*runv1.Event) (bool, error)) error {
	req := &apiv1.ListEventsRequest{RunId: runID, AfterRevision: after}
	for {
		resp, err := c.Query.ListEvents(ctx, req)
		if err != nil {
			return err
		}
		for _, e := range resp.GetEvents() {
			if more, err := fn(e); err != nil || !more {
				return err
			}
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return nil
		}
	}
}
