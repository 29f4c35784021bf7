package client

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/dev"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

// openKept starts only what answers questions over a kept folder, nothing that could move a run on.
func openKept(ctx context.Context, dir string) (*Client, error) {
	d, err := dev.Start(ctx, dev.Config{Dir: dir, Services: []string{dev.RunStore, dev.Gateway}, DisableFeed: true})
	if err != nil {
		return nil, unavailablef("folder %s cannot be opened: %v", dir, err)
	}
	c, err := dial(ctx, d.Gateway(), "")
	if err != nil {
		d.Close()
		return nil, err
	}
	c.From, c.kept = filepath.Clean(dir), d
	if err := caughtUp(ctx, c, d); err != nil {
		c.Close()
		return nil, fmt.Errorf("read folder %s: %w", dir, err)
	}
	return c, nil
}

// caughtUp waits until the run store has projected the whole log.
func caughtUp(ctx context.Context, c *Client, d *dev.Dev) error {
	nc, js, err := bus.Connect(d.Bus("cairn-read"))
	if err != nil {
		return err
	}
	defer nc.Close()
	n, err := bus.Partitions(ctx, js)
	if err != nil {
		return err
	}
	log, err := eventlog.NewNATS(ctx, js, eventlog.NATSConfig{})
	if err != nil {
		return err
	}
	for p := range n {
		last, err := log.Last(ctx, p)
		if err != nil {
			return err
		}
		at := &apiv1.LogPosition{Partition: int32(p), Sequence: last}
		if _, err := c.Query.ListRuns(ctx, &apiv1.ListRunsRequest{PageSize: 1, Position: at}); err != nil {
			return err
		}
	}
	return nil
}
