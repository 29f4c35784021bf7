package render

import runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

// ANSI colours.
const (
	plain  = ""
	dim    = "\x1b[2m"
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
	reset  = "\x1b[0m"
)

func (o Options) paint(color, s string) string {
	if !o.Color || color == plain || s == "" {
		return s
	}
	return color + s + reset
}

var frames = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// signOf is the sign before a step's line, and its colour.
func signOf(s runv1.StepStatus, frame int) (string, string) {
	switch s {
	case runv1.StepStatus_STEP_STATUS_RUNNING:
		return frames[frame%len(frames)], cyan
	case runv1.StepStatus_STEP_STATUS_WAITING:
		return "◷", yellow
	case runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER:
		return "?", yellow
	case runv1.StepStatus_STEP_STATUS_SUCCEEDED:
		return "✓", green
	case runv1.StepStatus_STEP_STATUS_FAILED:
		return "✗", red
	case runv1.StepStatus_STEP_STATUS_REPLANNING:
		return "↻", yellow
	case runv1.StepStatus_STEP_STATUS_SKIPPED:
		return "↷", dim
	case runv1.StepStatus_STEP_STATUS_CANCELLED, runv1.StepStatus_STEP_STATUS_REMOVED:
		return "–", dim
	}
	return "·", dim
}

func treeColor(s runv1.StepStatus) string {
	switch s {
	case runv1.StepStatus_STEP_STATUS_RUNNING, runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER:
		return bold
	case runv1.StepStatus_STEP_STATUS_FAILED:
		return red
	case runv1.StepStatus_STEP_STATUS_SUCCEEDED, runv1.StepStatus_STEP_STATUS_REPLANNING, runv1.StepStatus_STEP_STATUS_WAITING:
		return plain
	}
	return dim
}

func detailColor(s runv1.StepStatus) string {
	switch s {
	case runv1.StepStatus_STEP_STATUS_FAILED:
		return red
	case runv1.StepStatus_STEP_STATUS_REPLANNING, runv1.StepStatus_STEP_STATUS_WAITING, runv1.StepStatus_STEP_STATUS_WAITING_FOR_USER:
		return yellow
	case runv1.StepStatus_STEP_STATUS_SUCCEEDED, runv1.StepStatus_STEP_STATUS_RUNNING:
		return plain
	}
	return dim
}
