package executor_test

import (
	"fmt"
	"testing"

	"github.com/cairnrun/cairn/internal/bench/responder"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func TestRunsComplete(t *testing.T) {
	w := newWorld(t, 4)
	w.respond(responder.Config{})
	w.start("a", nil)
	for i := range 8 {
		w.submit(fmt.Sprintf("chain%d", i), "chain 5")
	}
	for i := range 8 {
		commits := w.ended(fmt.Sprintf("chain%d", i))
		if s := status(commits); s != runv1.RunStatus_RUN_STATUS_COMPLETED {
			t.Errorf("run %d ended as %s", i, s)
		}
		if n := count(commits, func(e *runv1.Event) bool { return e.GetStepSucceeded() != nil }); n != 5 {
			t.Errorf("run %d: %d steps succeeded", i, n)
		}
	}
}
