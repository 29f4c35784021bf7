package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func (a *app) watchCommand() *cobra.Command {
	var after int64
	c := &cobra.Command{
		Use:   "watch RUN",
		Short: "Show a run until it ends",
		Long:  "Shows a run live until it ends; the exit code tells how it ended. RUN is an id, the beginning of one, or \"last\".",
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := client.Read(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			id, err := cl.RunID(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.watchUntilEnd(c.Context(), cl, id, after, nil)
		},
	}
	c.Flags().Int64Var(&after, "after", 0, "only events after this revision")
	return c
}

// watchUntilEnd shows a run of a server. An interrupt ends the watch and leaves the run alone.
func (a *app) watchUntilEnd(ctx context.Context, cl *client.Client, id string, after int64, at *apiv1.LogPosition) error {
	in := onInterrupt()
	defer in.stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-in.first:
			cancel(&exit{exitInterrupted, fmt.Errorf("stopped watching; run %s goes on. Cancel it with: %s", id, a.command("cancel", id))})
		case <-ctx.Done():
		}
	}()
	view, err := a.follow(ctx, cl, id, after, at, a.screenFor())
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	if err := a.printOutcome(view); err != nil {
		return err
	}
	return ended(view.Ended())
}
