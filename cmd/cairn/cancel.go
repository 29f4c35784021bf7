package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func (a *app) cancelCommand() *cobra.Command {
	req := &apiv1.CancelRunRequest{By: userName()}
	c := &cobra.Command{
		Use:   "cancel RUN",
		Short: "Cancel a run",
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := client.Connect(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			if req.RunId, err = cl.RunID(c.Context(), args[0]); err != nil {
				return err
			}
			resp, err := cl.Runs.CancelRun(c.Context(), req)
			if err != nil {
				return err
			}
			if a.asJSON() {
				return a.printMessage(resp)
			}
			fmt.Fprintf(a.out, "run %s is %s\n", req.GetRunId(), render.Status(resp.GetStatus()))
			return nil
		},
	}
	c.Flags().BoolVarP(&req.Wait, "wait", "w", false, "come back only when the run has ended")
	c.Flags().StringVar(&req.Reason, "reason", "", "why, for the log")
	return c
}
