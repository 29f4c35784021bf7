package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func (a *app) listCommand() *cobra.Command {
	req := &apiv1.ListRunsRequest{}
	var limit int32
	c := &cobra.Command{
		Use:     "list",
		Short:   "List runs, the newest first",
		Example: "  cairn list --filter 'state=failed AND label.team=shop AND submitted>2026-01-02T15:04:05Z'",
		Args:    args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return badInputf("--limit %d: ask for 1 or more", limit)
			}
			cl, err := client.Read(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			all := &apiv1.ListRunsResponse{}
			for {
				// A page holds 1,000 at most.
				req.PageSize = min(1000, limit-int32(len(all.Runs)))
				resp, err := cl.Query.ListRuns(c.Context(), req)
				if err != nil {
					return err
				}
				all.Runs = append(all.Runs, resp.GetRuns()...)
				all.NextPageToken = resp.GetNextPageToken()
				if req.PageToken = all.NextPageToken; req.PageToken == "" || int32(len(all.Runs)) >= limit {
					return a.printRuns(all)
				}
			}
		},
	}
	c.Flags().StringVarP(&req.Filter, "filter", "f", "", "terms joined by AND: state=, label.KEY=, tool=, submitted> or <")
	c.Flags().Int32Var(&limit, "limit", 50, "how many at most")
	c.Flags().StringVar(&req.PageToken, "page-token", "", "go on where a list ended, by the token that it named")
	return c
}

func (a *app) printRuns(all *apiv1.ListRunsResponse) error {
	switch a.output {
	case outputJSON:
		return a.printMessage(all)
	case outputJSONL:
		for _, r := range all.GetRuns() {
			if err := a.printLine(r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all.GetRuns()) == 0 {
		fmt.Fprintln(a.err, "no runs")
		return nil
	}
	var rows [][]string
	for _, r := range all.GetRuns() {
		state := render.Status(r.GetStatus())
		if r.GetErrorCode() != "" {
			state += " (" + r.GetErrorCode() + ")"
		}
		rows = append(rows, []string{r.GetRunId(), state, clock(r.GetSubmittedAt()), labelText(r.GetLabels()), render.Line(r.GetGoal())})
	}
	a.table([]string{"RUN", "STATE", "SUBMITTED", "LABELS", "GOAL"}, rows)
	if all.GetNextPageToken() != "" {
		fmt.Fprintf(a.err, "there are more; raise --limit, or go on with --page-token %s\n", all.GetNextPageToken())
	}
	return nil
}
