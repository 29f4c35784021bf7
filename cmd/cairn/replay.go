package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	"github.com/cairnrun/cairn/pkg/replay"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func (a *app) replayCommand() *cobra.Command {
	var o replay.Options
	c := &cobra.Command{
		Use:   "replay RUN|FILE",
		Short: "Fold a run's log again; --verify compares what this binary decides with what the log says",
		Long: "Folds a run's log into its state and shows it. RUN is looked up on the server or in the kept folder; FILE is what\n" +
			"\"cairn export\" wrote. With --verify the recorded events are fed to this binary's core, and decided events and state\n" +
			"hashes are compared; the first that differs is named and the exit code is 1.",
		Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			resp, skipped, err := a.replay(c.Context(), args[0], o)
			if err != nil {
				return err
			}
			if err := a.printReplay(resp, skipped, o); err != nil {
				return err
			}
			if resp.GetDifference() != nil {
				return &exit{code: exitFailed}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&o.Verify, "verify", false, "compare decided events and state hashes")
	c.Flags().Int64Var(&o.Until, "until", 0, "the state at this revision, in place of the end")
	return c
}

// replay answers with the replayed run, and why its steps were skipped.
func (a *app) replay(ctx context.Context, what string, o replay.Options) (*apiv1.ReplayRunResponse, map[string]string, error) {
	if o.Until < 0 {
		return nil, nil, badInputf("--until %d: revisions begin at 1", o.Until)
	}
	file, err := os.Open(what)
	switch {
	case err == nil:
		defer func() { _ = file.Close() }()
		records, err := replay.Read(file)
		if err != nil {
			return nil, nil, badInputf("%s: %w", what, err)
		}
		resp, err := replay.Replay(records, o)
		if err != nil {
			return nil, nil, badInputf("%s: %w", what, err)
		}
		return resp, skippedIn(records), nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, badInputf("read %s: %w", what, err)
	case strings.HasSuffix(what, ".jsonl"):
		return nil, nil, badInputf("no file %s; make one with: cairn export RUN > %s", what, what)
	}
	cl, err := client.Read(ctx, a.where)
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	id, err := cl.RunID(ctx, what)
	if err != nil {
		return nil, nil, err
	}
	resp, err := cl.Query.ReplayRun(ctx, &apiv1.ReplayRunRequest{RunId: id, Verify: o.Verify, UntilRevision: o.Until})
	if err != nil {
		return nil, nil, err
	}
	skipped, err := skipDetails(ctx, cl, resp.GetState())
	return resp, skipped, err
}

// skippedIn finds in an export why steps were skipped; the newest word on a step counts.
func skippedIn(records []replay.Record) map[string]string {
	out := map[string]string{}
	for _, r := range records {
		for _, e := range r.Commit.GetEvents() {
			if k := e.GetStepSkipped(); k != nil {
				out[k.GetStepId()] = k.GetDetail()
			}
		}
	}
	return out
}

func (a *app) printReplay(r *apiv1.ReplayRunResponse, skipped map[string]string, o replay.Options) error {
	if a.asJSON() {
		return a.printMessage(r)
	}
	s := r.GetState()
	if s.GetRevision() > 0 {
		past, draw := at(s), drawing(a.out)
		draw.Now, past.skipped = past.now, skipped
		for _, line := range render.Header(s, draw) {
			fmt.Fprintln(a.out, line)
		}
		a.printTree(past)
		fmt.Fprintln(a.out)
	}
	fmt.Fprintf(a.out, "%d events in %d commits", r.GetEvents(), r.GetCommits())
	if s.GetRevision() > 0 {
		fmt.Fprintf(a.out, ", revision %d, state hash %s\n", s.GetRevision(), hex.EncodeToString(r.GetStateHash()))
	} else {
		// The commits do not follow on one another: there is no state to show.
		fmt.Fprintln(a.out, "; they make no state")
	}
	if other := r.GetOtherRulesVersions(); len(other) > 0 {
		fmt.Fprintf(a.out, "written by rules version %s; this binary has version %s\n", strings.Join(other, ", "), r.GetRulesVersion())
	}
	d := r.GetDifference()
	switch {
	case !o.Verify:
	case d == nil:
		fmt.Fprintln(a.out, "verified: every decided event and every state hash is the same")
	default:
		fmt.Fprintf(a.out, "DIFFERENT at revision %d: %s\n  in the log:  %s\n  replayed:    %s\n", d.GetRevision(), d.GetWhat(), render.Line(d.GetLogged()), render.Line(d.GetReplayed()))
	}
	return nil
}
