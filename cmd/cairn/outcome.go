package main

import (
	"fmt"

	"github.com/cairnrun/cairn/cmd/cairn/render"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// printOutcome shows how a run ended.
func (a *app) printOutcome(v *render.View) error {
	s := v.State()
	switch a.output {
	case outputJSON:
		return a.printOutcomeJSON(s)
	case outputJSONL:
		return nil
	}
	fmt.Fprintln(a.out)
	switch {
	case s.GetStatus() == runv1.RunStatus_RUN_STATUS_COMPLETED && s.GetAnswerArtifact() != nil:
		fmt.Fprintf(a.out, "completed; the answer is an artifact of %d bytes:\n  %s\n", s.GetAnswerArtifact().GetSize(), a.command("artifact", s.GetAnswerArtifact().GetSha256()))
	case s.GetStatus() == runv1.RunStatus_RUN_STATUS_COMPLETED:
		fmt.Fprintln(a.out, "completed, with the answer")
		return render.Answer(a.out, s.GetAnswer())
	case s.GetStatus() == runv1.RunStatus_RUN_STATUS_CANCELLED:
		fmt.Fprintln(a.out, "cancelled"+reason(s.GetCancelReason()))
	default:
		fmt.Fprintln(a.out, render.Failure(s))
	}
	return nil
}

func reason(s string) string {
	if s == "" {
		return ""
	}
	return ": " + render.Line(s)
}

// printOutcomeJSON prints one object with the fields of the run's state that tell how it ended; docs say which.
func (a *app) printOutcomeJSON(s *runv1.RunState) error {
	short := &runv1.RunState{
		RunId: s.GetRunId(), Status: s.GetStatus(), Revision: s.GetRevision(), Answer: s.GetAnswer(), AnswerArtifact: s.GetAnswerArtifact(),
		Error: s.GetError(), Replans: s.GetReplans(), CancelReason: s.GetCancelReason(),
	}
	if v := s.GetPlan().GetVersion(); v > 0 {
		short.Plan = &planv1.Plan{Version: v}
	}
	text, err := exactjson.MarshalIndent(short, "  ")
	if err != nil {
		return fmt.Errorf("show the outcome: %w", err)
	}
	_, err = fmt.Fprintf(a.out, "%s\n", text)
	return err
}
