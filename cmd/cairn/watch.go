package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
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
			if err := a.goesOn(c.Context(), cl, id); err != nil {
				return err
			}
			return a.watchUntilEnd(c.Context(), cl, id, after, nil)
		},
	}
	c.Flags().Int64Var(&after, "after", 0, "only events after this revision")
	return c
}

// goesOn says so when a run has not ended and stands in a folder that nobody serves: a watch would never end.
func (a *app) goesOn(ctx context.Context, cl *client.Client, id string) error {
	if !cl.Kept() {
		return nil
	}
	resp, err := cl.Query.GetRun(ctx, &apiv1.GetRunRequest{RunId: id})
	if err != nil || resp.GetRun().GetPhase() == runv1.RunPhase_RUN_PHASE_ENDED {
		return err
	}
	return unavailable(fmt.Errorf("nobody serves folder %s, so run %s does not go on; it does with: %s dev --dir %s. Where it stands: %s",
		cl.From, id, self(), quoted(cl.From), a.command("get", id)))
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
