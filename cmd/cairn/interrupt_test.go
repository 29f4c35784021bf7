package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/dev"
)

// waiting begins "cairn run" of a plan that waits for an hour and returns when it waits.
func waiting(t *testing.T) (*exec.Cmd, *buffer, string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "wait.yaml")
	text := "goal: wait long\nsteps:\n- id: pause\n  action: {kind: control, name: wait, arguments: {duration: 1h}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, out := filepath.Join(dir, "kept"), &buffer{}
	cmd := exec.Command("cairn", "run", file, "--dir", kept)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	until(t, "the run waits", func() bool {
		h, held, err := dev.Held(kept)
		if err != nil || !held || h.Gateway == "" {
			return false
		}
		events, err := exec.Command("cairn", "events", "last", "--dir", kept).Output()
		return err == nil && strings.Contains(string(events), "StepStarted")
	})
	return cmd, out, kept
}

func TestTheFirstInterruptCancelsTheRun(t *testing.T) {
	t.Parallel()
	cmd, out, kept := waiting(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitCancelled {
		t.Fatalf("exit code %d, want %d\n%s", cmd.ProcessState.ExitCode(), exitCancelled, out)
	}
	if got := cairn(t, "list", "--dir", kept, "--filter", "state=cancelled"); strings.Count(got, "wait long") != 1 {
		t.Errorf("list of cancelled runs:\n%s", got)
	}
}

// Who stops watching leaves the run alone, and that is no cancelled run.
func TestAnInterruptedWatchLeavesTheRunAlone(t *testing.T) {
	t.Parallel()
	_, _, kept := waiting(t)
	out := &buffer{}
	watch := exec.Command("cairn", "watch", "last", "--dir", kept)
	watch.Stdout, watch.Stderr = out, out
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the watch shows the run", func() bool { return strings.Contains(out.String(), "wait long") })
	if err := watch.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if _ = watch.Wait(); watch.ProcessState.ExitCode() != exitInterrupted {
		t.Errorf("exit code %d, want %d", watch.ProcessState.ExitCode(), exitInterrupted)
	}
	if want := "goes on. Cancel it with: cairn cancel r"; !strings.Contains(out.String(), want) || !strings.Contains(out.String(), " --dir "+kept) {
		t.Errorf("%q and the folder are not in:\n%s", want, out)
	}
	if got := cairn(t, "list", "--dir", kept, "--filter", "state=waiting"); strings.Count(got, "wait long") != 1 {
		t.Errorf("list of waiting runs:\n%s", got)
	}
}

// A run that was left, here by SIGKILL, is open in its folder and goes on when the folder is served again.
func TestARunThatWasLeftGoesOn(t *testing.T) {
	t.Parallel()
	cmd, _, kept := waiting(t)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if got := cairn(t, "get", "last", "--dir", kept); !strings.Contains(got, "· waiting for tool ·") && !strings.Contains(got, "pause") {
		t.Errorf("after the kill:\n%s", got)
	}
	watch := exec.CommandContext(t.Context(), "cairn", "watch", "last", "--dir", kept)
	said, _ := watch.CombinedOutput()
	if want := "nobody serves folder " + kept; watch.ProcessState.ExitCode() != exitUnavailable || !strings.Contains(string(said), want) || !strings.Contains(string(said), "cairn dev --dir "+kept) {
		t.Errorf("watch of a folder that nobody serves: exit code %d\n%s", watch.ProcessState.ExitCode(), said)
	}
	b := runInBackground(t, filepath.Dir(kept), "cairn dev --nats-listen 127.0.0.1:0 --listen 127.0.0.1:0 --dir kept")
	until(t, "dev serves", func() bool { return strings.Contains(b.log.String(), "ready") })
	if got := cairn(t, "cancel", "last", "--wait", "--dir", kept); !strings.Contains(got, "is cancelled") {
		t.Errorf("cancel: %s", got)
	}
	b.stop(t)
}
