package main

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cairnrun/cairn/internal/dev"
)

// The test binary is "cairn" too: scripts and tests find it on PATH.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"cairn": main})
}

func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("EXAMPLES", examples)
			// A folder that is named is meant, whatever else runs on this machine.
			e.Setenv("CAIRN_DIR", ".cairn")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "await": await, "waitfor": waitfor, "eventually": eventually, "freeport": freeport, "listen": listen,
		},
	})
}

// exits CODE COMMAND...: the command ends with exactly this exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// patience is how long something that must happen may take on a busy machine.
const patience = 60 * time.Second

// await FOLDER: a server has the kept folder and says where it can be asked.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FOLDER")
	}
	for deadline := time.Now().Add(patience); ; {
		h, held, err := dev.Held(ts.MkAbs(args[0]))
		ts.Check(err)
		if held && h.Gateway != "" {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("nobody serves folder %s", args[0])
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// waitfor RUN EVENT: the run has an event of this kind, by its field name: step_started.
func waitfor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitfor RUN EVENT")
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		// A run that is still starting has no server, or no such run, yet.
		err := ts.Exec("cairn", "events", args[0], "-o", "jsonl")
		if err == nil && strings.Contains(ts.ReadFile("stdout"), `"`+args[1]+`":{`) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("run %s has no event %s: %v", args[0], args[1], err)
		}
	}
}

// eventually PATTERN COMMAND...: the command's output matches within patience. Lists follow the log with a delay.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN COMMAND...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err := ts.Exec(args[1], args[2:]...); err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no match for %s within %s", args[0], patience)
		}
	}
}

// freeport NAME: sets the variable to an address that nobody listens on.
func freeport(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: freeport NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	ts.Check(l.Close())
}

// listen NAME: takes a port until the script ends and sets the variable to its address.
func listen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: listen NAME")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Setenv(args[0], fmt.Sprint(l.Addr()))
	ts.Defer(func() { _ = l.Close() })
}
