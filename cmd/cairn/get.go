package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func (a *app) getCommand() *cobra.Command {
	var revision int64
	c := &cobra.Command{
		Use:   "get RUN",
		Short: "Show where a run stands",
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.getRun(c, args[0], revision)
			if err != nil {
				return err
			}
			if a.asJSON() {
				return a.printMessage(s)
			}
			return a.printRun(s)
		},
	}
	c.Flags().Int64Var(&revision, "revision", 0, "the state at this revision, in place of now")
	return c
}

func (a *app) getRun(c *cobra.Command, typed string, revision int64) (*runv1.RunState, error) {
	cl, err := client.Read(c.Context(), a.where)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	id, err := cl.RunID(c.Context(), typed)
	if err != nil {
		return nil, err
	}
	resp, err := cl.Query.GetRun(c.Context(), &apiv1.GetRunRequest{RunId: id, Revision: revision})
	return resp.GetRun(), err
}

func (a *app) printRun(s *runv1.RunState) error {
	o := drawing(a.out)
	o.Now = time.Now()
	for _, line := range render.Header(s, o) {
		fmt.Fprintln(a.out, line)
	}
	if labels := labelText(s.GetSpec().GetLabels()); labels != "" {
		fmt.Fprintln(a.out, "labels "+labels)
	}
	fmt.Fprintln(a.out, "submitted "+clock(s.GetSubmittedAt())+", revision "+fmt.Sprint(s.GetRevision()))
	if s.GetPlan() != nil {
		fmt.Fprintln(a.out)
		a.printTree(s)
	}
	for _, in := range s.GetInputs() {
		if in.GetOpen() {
			fmt.Fprintf(a.out, "\nwaits for an answer to %s: %s\n  cairn answer %s %s JSON\n", in.GetRequestId(), render.Line(in.GetQuestion()), s.GetRunId(), in.GetRequestId())
		}
	}
	if s.GetError() != nil {
		fmt.Fprintln(a.out, "\nerror "+render.ErrorText(s.GetError()))
	}
	if s.GetAnswer() != nil {
		fmt.Fprintln(a.out, "\nanswer")
		return render.Answer(a.out, s.GetAnswer())
	}
	return nil
}

func (a *app) printTree(s *runv1.RunState) {
	o := drawing(a.out)
	o.Now = time.Now()
	var tree render.Tree
	for _, line := range tree.Lines(s, o) {
		fmt.Fprintln(a.out, line)
	}
}

func labelText(labels []*runv1.Label) string {
	var parts []string
	for _, l := range labels {
		parts = append(parts, l.GetKey()+"="+l.GetValue())
	}
	return render.Line(strings.Join(parts, " "))
}
