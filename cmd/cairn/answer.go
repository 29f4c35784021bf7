package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

func (a *app) answerCommand() *cobra.Command {
	req := &apiv1.AnswerInputRequest{}
	c := &cobra.Command{
		Use:   "answer RUN REQUEST ANSWER",
		Short: "Answer a question or an approval of a run",
		Long: "Answers what a run asks; \"cairn get RUN\" shows the questions, their ids and what they take. ANSWER is JSON, or text without\n" +
			"quotes. A question of a step takes what the step's schema says, and anything without one; an approval takes\n" +
			"{\"approved\": true} or false; what becomes of a failed step is {\"decision\": \"retry\"}, \"skip\" or \"fail\".",
		Example: "  cairn answer last input-1 '{\"approved\": true}'\n  cairn answer last input-2 '{\"decision\": \"retry\"}'\n  cairn answer last input-3 red",
		Args:    args(3, 3),
		RunE: func(c *cobra.Command, args []string) error {
			answer, err := answerText(args[2])
			if err != nil {
				return err
			}
			req.RequestId, req.Answer = args[1], answer
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

// answerText is an answer as exact JSON: what is no JSON and cannot be meant as such is text.
func answerText(given string) (*planv1.JsonText, error) {
	text, err := exactjson.Text([]byte(given))
	if err == nil {
		return &planv1.JsonText{Text: strings.TrimSpace(text)}, nil
	}
	if render.MustBeJSON(given) {
		return nil, badInputf("the answer is no JSON (%w); text needs no quotes, as: red", err)
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(given); err != nil {
		return nil, badInputf("the answer: %w", err)
	}
	return &planv1.JsonText{Text: strings.TrimSpace(b.String())}, nil
}
