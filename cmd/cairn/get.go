package main

import (
	"context"
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
			r, err := a.getRun(c, args[0], revision)
			if err != nil {
				return err
			}
			if a.asJSON() {
				return a.printMessage(r.state)
			}
			return a.printRun(r)
		},
	}
	c.Flags().Int64Var(&revision, "revision", 0, "the state at this revision, in place of now")
	return c
}

// shownRun is a run's state with what drawing it needs besides.
type shownRun struct {
	state *runv1.RunState
	// now is what durations of steps under way are counted to; the zero time leaves them out.
	now time.Time
	// skipped says why steps were skipped, by their events.
	skipped map[string]string
}

// at is a state of the past: its clock stands still at its newest event.
func at(s *runv1.RunState) shownRun {
	r := shownRun{state: s}
	if s.GetUpdatedAt() != nil {
		r.now = s.GetUpdatedAt().AsTime()
	}
	return r
}

func (a *app) getRun(c *cobra.Command, typed string, revision int64) (shownRun, error) {
	cl, err := client.Read(c.Context(), a.where)
	if err != nil {
		return shownRun{}, err
	}
	defer cl.Close()
	id, err := cl.RunID(c.Context(), typed)
	if err != nil {
		return shownRun{}, err
	}
	resp, err := cl.Query.GetRun(c.Context(), &apiv1.GetRunRequest{RunId: id, Revision: revision})
	if err != nil {
		return shownRun{}, err
	}
	r := at(resp.GetRun())
	if revision == 0 {
		r.now = time.Now()
	}
	if !a.asJSON() {
		r.skipped, err = skipDetails(c.Context(), cl, r.state)
	}
	return r, err
}

// maxSkipDetails bounds the events that are asked for to draw one run.
const maxSkipDetails = 50

// skipDetails fetches what the state leaves out: why steps were skipped.
func skipDetails(ctx context.Context, cl *client.Client, s *runv1.RunState) (map[string]string, error) {
	out := map[string]string{}
	for _, st := range s.GetSteps() {
		if st.GetStatus() != runv1.StepStatus_STEP_STATUS_SKIPPED || st.GetRevision() < 1 || len(out) == maxSkipDetails {
			continue
		}
		req := &apiv1.ListEventsRequest{RunId: s.GetRunId(), AfterRevision: st.GetRevision() - 1, PageSize: 1}
		resp, err := cl.Query.ListEvents(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, e := range resp.GetEvents() {
			if k := e.GetStepSkipped(); k.GetStepId() == st.GetStepId() {
				out[st.GetStepId()] = k.GetDetail()
			}
		}
	}
	return out, nil
}

func (a *app) printRun(r shownRun) error {
	s, o := r.state, drawing(a.out)
	o.Now = r.now
	for _, line := range render.Header(s, o) {
		fmt.Fprintln(a.out, line)
	}
	line := func(text string) {
		if o.Width > 0 {
			text = render.Cut(text, o.Width)
		}
		fmt.Fprintln(a.out, text)
	}
	if input := render.Value(s.GetSpec().GetInput()); input != "" && input != "{}" {
		line("input " + input)
	}
	if labels := labelText(s.GetSpec().GetLabels()); labels != "" {
		line("labels " + labels)
	}
	line("submitted " + clock(s.GetSubmittedAt()) + ", revision " + fmt.Sprint(s.GetRevision()))
	if s.GetPlan() != nil {
		fmt.Fprintln(a.out)
		a.printTree(r)
	}
	for _, in := range s.GetInputs() {
		if in.GetOpen() {
			fmt.Fprintf(a.out, "\nwaits for an answer to %s: %s\n  %s\n", in.GetRequestId(), render.Line(in.GetQuestion()),
				render.AnswerLine(a.command, s.GetRunId(), in.GetRequestId(), in.GetSchema()))
		}
	}
	if s.GetError() != nil {
		fmt.Fprintln(a.out, "\n"+render.Failure(s))
	}
	if art := s.GetAnswerArtifact(); art != nil {
		fmt.Fprintf(a.out, "\nanswer, an artifact of %d bytes:\n  %s\n", art.GetSize(), a.command("artifact", art.GetSha256()))
	}
	if s.GetAnswer() != nil {
		fmt.Fprintln(a.out, "\nanswer")
		return render.Answer(a.out, s.GetAnswer())
	}
	return nil
}

func (a *app) printTree(r shownRun) {
	o := drawing(a.out)
	o.Now, o.Skipped = r.now, r.skipped
	var tree render.Tree
	for _, line := range tree.Lines(r.state, o) {
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
