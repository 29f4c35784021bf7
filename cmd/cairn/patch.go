package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func (a *app) patchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "patch RUN FILE",
		Short: "Change a run's plan by hand",
		Long: "Sends a patch document (base_version, add, update, remove, reason) as YAML or JSON; - reads standard input. It is accepted\n" +
			"as a whole or not at all, and refused when the plan is no longer at base_version.",
		Args: args(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			patch, err := a.readDocument(args[1])
			if err != nil {
				return err
			}
			cl, err := client.Connect(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			id, err := cl.RunID(c.Context(), args[0])
			if err != nil {
				return err
			}
			resp, err := cl.Runs.PatchPlan(c.Context(), &apiv1.PatchPlanRequest{RunId: id, Patch: patch})
			if err != nil {
				return err
			}
			if a.asJSON() {
				return a.printMessage(resp)
			}
			fmt.Fprintf(a.out, "run %s has plan version %d\n", id, resp.GetPlanVersion())
			return nil
		},
	}
}
