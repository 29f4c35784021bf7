package runstore

import (
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// summary is what some commits of a run say about its line in the table; fields that they do not mention stay empty.
type summary struct {
	RunID     string
	Tenant    string
	Partition int
	Status    runv1.RunStatus
	Phase     runv1.RunPhase
	// Goal of the spec; PlanGoal stands in where the spec has none.
	Goal, PlanGoal string
	Labels         []*runv1.Label
	Tools          []string
	PlanVersion    int32
	ErrorCode      string
	Revision       int64
	// Nanoseconds since 1970. Submitted is 0 where the submission is not among the commits.
	Submitted, Updated int64
	EndedRevision      int64
	SnapshotRevision   int64
}

// add takes one commit in; events are its complete events.
func (s *summary) add(c *runv1.Commit, events []*runv1.Event) {
	s.RunID = c.GetRunId()
	if t := c.GetTenant(); t != "" {
		s.Tenant = t
	}
	s.Status, s.Phase = c.GetStatus(), c.GetPhase()
	if at := c.GetTime(); at != nil {
		s.Updated = max(s.Updated, at.AsTime().UnixNano())
	}
	if snap := c.GetSnapshot(); snap != nil {
		s.addSnapshot(snap)
	}
	for _, e := range events {
		s.addEvent(e)
	}
}

func (s *summary) addEvent(e *runv1.Event) {
	s.Revision = max(s.Revision, e.GetRevision())
	switch b := e.GetBody().(type) {
	case *runv1.Event_RunSubmitted:
		s.submit(b.RunSubmitted.GetSpec(), e.GetTime())
	case *runv1.Event_PlanCreated:
		s.PlanVersion = max(s.PlanVersion, b.PlanCreated.GetPlan().GetVersion(), 1)
		s.planGoal(b.PlanCreated.GetPlan())
		s.addTools(b.PlanCreated.GetTools(), b.PlanCreated.GetPlan().GetSteps())
	case *runv1.Event_PlanPatched:
		s.PlanVersion = max(s.PlanVersion, b.PlanPatched.GetVersion())
		s.addTools(b.PlanPatched.GetTools(), b.PlanPatched.GetPatch().GetAdd())
		s.addTools(nil, b.PlanPatched.GetPatch().GetUpdate())
	case *runv1.Event_RunQuarantined:
		s.ErrorCode = "quarantined"
	case *runv1.Event_RunFailed:
		s.ErrorCode = b.RunFailed.GetError().GetCode()
		s.end(e)
	case *runv1.Event_RunCompleted, *runv1.Event_RunCancelled:
		s.end(e)
	}
}

func (s *summary) end(e *runv1.Event) {
	if s.EndedRevision == 0 {
		s.EndedRevision = e.GetRevision()
	}
}

// addSnapshot takes a whole state in, for logs whose head is gone.
func (s *summary) addSnapshot(r *runv1.RunState) {
	s.SnapshotRevision = r.GetRevision()
	s.Revision = max(s.Revision, r.GetRevision())
	s.submit(r.GetSpec(), r.GetSubmittedAt())
	s.planGoal(r.GetPlan())
	s.PlanVersion = max(s.PlanVersion, r.GetPlan().GetVersion())
	s.addTools(r.GetTools(), r.GetPlan().GetSteps())
	if code := r.GetError().GetCode(); code != "" {
		s.ErrorCode = code
	}
	if ended(r.GetStatus()) && s.EndedRevision == 0 {
		s.EndedRevision = r.GetRevision()
	}
}

// submit and planGoal let the first one stand: what a line shows must not depend on which commits shared a transaction.
func (s *summary) submit(spec *runv1.RunSpec, at *timestamppb.Timestamp) {
	if s.Submitted == 0 && at != nil {
		s.Submitted, s.Goal, s.Labels = at.AsTime().UnixNano(), spec.GetGoal(), spec.GetLabels()
	}
}

func (s *summary) planGoal(p *planv1.Plan) {
	if s.PlanGoal == "" {
		s.PlanGoal = p.GetGoal()
	}
}

func (s *summary) addTools(defs []*planv1.ToolDefinition, steps []*planv1.Step) {
	for _, d := range defs {
		s.addTool(d.GetName())
	}
	for _, st := range steps {
		switch a := st.GetAction(); a.GetKind() {
		case planv1.ActionKind_ACTION_KIND_TOOL:
			s.addTool(a.GetName())
		case planv1.ActionKind_ACTION_KIND_LLM:
			s.addTool("llm." + a.GetName())
		}
	}
}

// addTool keeps the names sorted and single.
func (s *summary) addTool(name string) {
	if i, found := slices.BinarySearch(s.Tools, name); !found && name != "" {
		s.Tools = slices.Insert(s.Tools, i, name)
	}
}

// ended says whether a status is final.
func ended(s runv1.RunStatus) bool {
	switch s {
	case runv1.RunStatus_RUN_STATUS_COMPLETED, runv1.RunStatus_RUN_STATUS_FAILED, runv1.RunStatus_RUN_STATUS_CANCELLED:
		return true
	}
	return false
}

// terminal says whether an event ends its run.
func terminal(e *runv1.Event) bool {
	switch e.GetBody().(type) {
	case *runv1.Event_RunCompleted, *runv1.Event_RunFailed, *runv1.Event_RunCancelled:
		return true
	}
	return false
}
