package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	"github.com/cairnrun/cairn/cmd/cairn/runfile"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func (a *app) planCommand() *cobra.Command {
	var revision int64
	c := &cobra.Command{
		Use:   "plan RUN",
		Short: "Show a run's plan as a tree; check a plan document; print its schema",
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := a.getRun(c, args[0], revision)
			if err != nil {
				return err
			}
			s := r.state
			if s.GetPlan() == nil {
				return badInputf("run %s has no plan yet at revision %d", s.GetRunId(), s.GetRevision())
			}
			if a.asJSON() {
				return a.printMessage(s.GetPlan())
			}
			a.printTree(r)
			return nil
		},
	}
	c.Flags().Int64Var(&revision, "revision", 0, "the plan at this revision, in place of now")
	c.AddCommand(a.planCheckCommand(), a.planSchemaCommand())
	return c
}

func (a *app) planCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Validate a plan document against the tool registry, without running it",
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := runfile.Load(args[0])
			if err != nil {
				return badInput(err)
			}
			if f.Spec.GetPlan() == nil {
				return badInputf("%s holds a goal, not a plan; a plan document has steps:", args[0])
			}
			cl, err := client.Read(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			resp, err := validate(c.Context(), cl, f.Spec)
			if err != nil {
				return err
			}
			return a.printCheck(args[0], resp)
		},
	}
}

func (a *app) printCheck(file string, resp *apiv1.ValidatePlanResponse) error {
	if a.asJSON() {
		if err := a.printMessage(resp); err != nil {
			return err
		}
	} else {
		if resp.GetValid() {
			a.printTree(shownRun{state: &runv1.RunState{Plan: resp.GetPlan()}})
		}
		for _, f := range resp.GetFindings() {
			fmt.Fprintf(a.out, "%s %s\n", severity(f), render.Finding(f))
		}
	}
	if !resp.GetValid() {
		return badInputf("%s is refused: %s", file, count(len(planErrors(resp.GetFindings()))))
	}
	return nil
}

func severity(f *planv1.Finding) string {
	switch f.GetSeverity() {
	case planv1.Severity_SEVERITY_ERROR:
		return "error  "
	case planv1.Severity_SEVERITY_WARNING:
		return "warning"
	}
	return "note   "
}

// readFile reads a document that a command line names; "-" is standard input.
func (a *app) readFile(path string) ([]byte, error) {
	if path == "-" {
		return readAll(a.in, runfile.MaxBytes)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, badInputf("read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	return readAll(f, runfile.MaxBytes)
}
