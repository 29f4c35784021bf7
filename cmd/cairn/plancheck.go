package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// checkPlan refuses a plan document before anything is submitted: whoever wrote it by hand wants to hear of all that is
// wrong at once, and no run that fails of it. Warnings are shown.
func (a *app) checkPlan(ctx context.Context, cl *client.Client, name string, spec *runv1.RunSpec) error {
	if spec.GetPlan() == nil {
		return nil
	}
	asked := proto.CloneOf(spec)
	if asked.GetInput() == nil {
		// Nothing more will be given than is there now.
		asked.Input = &planv1.JsonText{Text: "{}"}
	}
	resp, err := validate(ctx, cl, asked)
	if err != nil {
		return err
	}
	if resp.GetValid() {
		for _, f := range resp.GetFindings() {
			if f.GetSeverity() == planv1.Severity_SEVERITY_WARNING && !a.asJSON() {
				fmt.Fprintf(a.err, "%s: warning: %s\n", name, render.Finding(f))
			}
		}
		return nil
	}
	errs := planErrors(resp.GetFindings())
	if len(errs) == 1 {
		return badInputf("%s: %s Nothing was submitted", name, sentence(errs[0]))
	}
	return badInputf("%s is refused with %s; nothing was submitted:\n  %s", name, count(len(errs)), strings.Join(errs, "\n  "))
}

func validate(ctx context.Context, cl *client.Client, spec *runv1.RunSpec) (*apiv1.ValidatePlanResponse, error) {
	rest := proto.CloneOf(spec)
	rest.Plan = nil
	if proto.Size(rest) == 0 {
		// A plan document alone says nothing of the runs that will use it, nor of their input.
		rest = nil
	}
	return cl.Runs.ValidatePlan(ctx, &apiv1.ValidatePlanRequest{Plan: spec.GetPlan(), Spec: rest})
}

func planErrors(fs []*planv1.Finding) []string {
	var out []string
	for _, f := range fs {
		if f.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
			out = append(out, render.Finding(f))
		}
	}
	return out
}

func count(n int) string {
	if n == 1 {
		return "1 error"
	}
	return fmt.Sprintf("%d errors", n)
}

// sentence ends s with a full stop where it has no end.
func sentence(s string) string {
	if strings.HasSuffix(s, "?") || strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}
