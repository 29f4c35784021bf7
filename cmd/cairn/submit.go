package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/runfile"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func (a *app) submitCommand() *cobra.Command {
	var o runfile.Overrides
	var wait bool
	c := &cobra.Command{
		Use:     "submit FILE|GOAL",
		Short:   "Submit a goal, a plan or a run file to a server",
		Long:    "Submits a run to the gateway and prints its id. Templates and tools that a run file names are those of the server:\nthe file's own are only for \"cairn run\".",
		Example: "  cairn submit \"Order 1 iPhone 15 Pro 256G black, ship to Shanghai\"\n  cairn submit plan.yaml --label team=shop --request-id order-17 --wait",
		Args:    args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := runfile.Load(args[0])
			if err != nil {
				return badInput(err)
			}
			if err := o.Apply(f); err != nil {
				return badInput(err)
			}
			cl, err := client.Connect(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			a.noteLocal(args[0], f)
			if err := a.checkPlan(c.Context(), cl, args[0], f.Spec); err != nil {
				return err
			}
			resp, err := cl.Runs.SubmitRun(c.Context(), &apiv1.SubmitRunRequest{RequestId: f.RequestID, Spec: f.Spec})
			if err != nil {
				return err
			}
			if wait {
				return a.watchUntilEnd(c.Context(), cl, resp.GetRunId(), 0, resp.GetPosition())
			}
			if a.asJSON() {
				return a.printMessage(resp)
			}
			if !resp.GetCreated() {
				fmt.Fprintln(a.err, "this request had been submitted before; here is its run")
			}
			fmt.Fprintln(a.out, resp.GetRunId())
			return nil
		},
	}
	overrideFlags(c, &o)
	c.Flags().BoolVarP(&wait, "wait", "w", false, "show the run until it ends; the exit code tells how it ended")
	return c
}

// noteLocal says what of a run file a server does not take.
func (a *app) noteLocal(name string, f *runfile.File) {
	var parts []string
	if f.Templates != "" || f.InlineTemplates != nil {
		parts = append(parts, "templates")
	}
	if len(f.Tools) > 0 {
		parts = append(parts, "tools")
	}
	if len(parts) > 0 && !a.asJSON() {
		fmt.Fprintf(a.err, "%s: its %s are only for \"cairn run\"; the server's own are used (cairn dev --templates FILE --tools NAME)\n", name, strings.Join(parts, " and "))
	}
}
