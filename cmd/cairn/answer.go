package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

func (a *app) answerCommand() *cobra.Command {
	req := &apiv1.AnswerInputRequest{}
	c := &cobra.Command{
		Use:     "answer RUN REQUEST JSON",
		Short:   "Answer a question or an approval of a run",
		Example: "  cairn answer last input-1 '{\"approved\": true}'",
		Args:    args(3, 3),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := exactjson.Text([]byte(args[2]))
			if err != nil {
				return badInputf("the answer is no JSON (%w); text needs quotes, as '\"red\"'", err)
			}
			req.RequestId, req.Answer = args[1], &planv1.JsonText{Text: strings.TrimSpace(text)}
			cl, err := client.Connect(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			if req.RunId, err = cl.RunID(c.Context(), args[0]); err != nil {
				return err
			}
			resp, err := cl.Runs.AnswerInput(c.Context(), req)
			if err != nil {
				return err
			}
			if a.asJSON() {
				return a.printMessage(resp)
			}
			if !resp.GetCreated() {
				fmt.Fprintln(a.out, "exactly this had been answered before")
				return nil
			}
			fmt.Fprintf(a.out, "answered %s of run %s\n", req.GetRequestId(), req.GetRunId())
			return nil
		},
	}
	c.Flags().StringVar(&req.By, "by", userName(), "who answers, for the log")
	return c
}
