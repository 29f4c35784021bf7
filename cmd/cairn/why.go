package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func (a *app) whyCommand() *cobra.Command {
	req := &apiv1.ExplainRunRequest{}
	c := &cobra.Command{
		Use:   "why RUN [STEP]",
		Short: "Explain from the log why a run ended, or a step went, as it did",
		Args:  args(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := client.Read(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			if req.RunId, err = cl.RunID(c.Context(), args[0]); err != nil {
				return err
			}
			if len(args) > 1 {
				req.StepId = args[1]
			}
			resp, err := cl.Query.ExplainRun(c.Context(), req)
			if err != nil {
				return err
			}
			if a.asJSON() {
				return a.printMessage(resp)
			}
			for i, r := range resp.GetChain() {
				word := "because"
				if i == 0 {
					word = "       "
				}
				fmt.Fprintf(a.out, "%s  %5d  %s\n", word, r.GetEvent().GetRevision(), render.Line(r.GetText()))
			}
			return nil
		},
	}
	c.Flags().Int64Var(&req.Revision, "revision", 0, "explain this event")
	return c
}
