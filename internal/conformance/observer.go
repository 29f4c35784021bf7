package main

import (
	"context"
	"sync"

	"github.com/cairnrun/cairn/pkg/eventlog"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// observer reads the log itself, beside the services, so that what it says of a run is what is durable.
type observer struct {
	mu      sync.Mutex
	runs    map[string]*observed
	changed map[string]chan struct{}
	// onCommit is told after each commit of a run; in the order of the log.
	onCommit func(runID string)
}

// observed is what the log says of a run.
type observed struct {
	status   runv1.RunStatus
	revision int64
	// open actions: requested and not observed.
	open map[string]bool
	// more: the owner goes on before anything else happens.
	more      bool
	requested int
	failure   string
}

func newObserver() *observer {
	return &observer{runs: map[string]*observed{}, changed: map[string]chan struct{}{}}
}

func (o *observer) follow(ctx context.Context, log eventlog.Log, partition int) error {
	return log.Follow(ctx, partition, 0, func(m eventlog.Message) error {
		g, err := eventlog.DecodeGroup(m.Data)
		if err != nil {
			return err
		}
		for _, e := range g.GetEntries() {
			c, err := eventlog.DecodeCommit(e)
			if err != nil {
				return err
			}
			o.commit(c)
		}
		return nil
	})
}

func (o *observer) commit(c *runv1.Commit) {
	o.mu.Lock()
	r := o.runs[c.GetRunId()]
	if r == nil {
		r = &observed{open: map[string]bool{}}
		o.runs[c.GetRunId()] = r
	}
	for _, e := range c.GetEvents() {
		r.revision = e.GetRevision()
		switch b := e.GetBody().(type) {
		case *runv1.Event_ActionRequested:
			r.open[b.ActionRequested.GetActionId()] = true
			r.requested++
		case *runv1.Event_ObservationRecorded:
			delete(r.open, b.ObservationRecorded.GetActionId())
		case *runv1.Event_RunFailed:
			r.failure = b.RunFailed.GetError().GetCode() + ": " + b.RunFailed.GetError().GetMessage()
		}
	}
	r.status, r.more = c.GetStatus(), c.GetMore()
	if ch := o.changed[c.GetRunId()]; ch != nil {
		close(ch)
		delete(o.changed, c.GetRunId())
	}
	told := o.onCommit
	o.mu.Unlock()
	if told != nil {
		told(c.GetRunId())
	}
}

// setOnCommit is for after the observer has begun to follow.
func (o *observer) setOnCommit(fn func(runID string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.onCommit = fn
}

// look calls fn with what is known of a run, under the observer's lock.
func (o *observer) look(runID string, fn func(*observed)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.runs[runID]; r != nil {
		fn(r)
	}
}

// ended waits until the log holds a run's end.
func (o *observer) ended(ctx context.Context, runID string) (observed, error) {
	for {
		o.mu.Lock()
		if r := o.runs[runID]; r != nil && terminal(r.status) {
			got := *r
			o.mu.Unlock()
			return got, nil
		}
		ch := o.changed[runID]
		if ch == nil {
			ch = make(chan struct{})
			o.changed[runID] = ch
		}
		o.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			var got observed
			o.look(runID, func(r *observed) { got = *r })
			return got, ctx.Err()
		}
	}
}

func terminal(s runv1.RunStatus) bool {
	switch s {
	case runv1.RunStatus_RUN_STATUS_COMPLETED, runv1.RunStatus_RUN_STATUS_FAILED, runv1.RunStatus_RUN_STATUS_CANCELLED, runv1.RunStatus_RUN_STATUS_QUARANTINED:
		return true
	}
	return false
}
