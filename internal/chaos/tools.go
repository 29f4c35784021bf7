//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/pkg/tool"
)

// templatesText plans five steps. Every fifth run fails a check and has a step replanned.
const templatesText = `
templates:
- name: chaos
  goal: '^chaos (?<n>\d+)(?<spoilt> spoilt)?$'
  slots: {n: {type: integer}, spoilt: {default: ""}}
  plan:
    goal: Five effects
    assumptions: [{id: fresh, text: What was asked for is not spoilt}]
    steps:
    - {id: first, tool: chaos.once, arguments: {n: {$slot: n}}, retry: {max_attempts: 20, delay: 0.2s, factor: 1}}
    - {id: second, tool: chaos.keyed, arguments: {n: {$ref: steps.first.result.n}}, retry: {max_attempts: 20, delay: 0.2s, factor: 1}}
    - id: third
      tool: chaos.keyed
      arguments: {n: {$slot: n}, spoilt: {$slot: spoilt}}
      retry: {max_attempts: 20, delay: 0.2s, factor: 1}
      expect: {checks: [{expression: result.spoilt == "", message: spoilt, assumption: fresh}]}
      on_failure: replan_step
    - {id: fourth, tool: chaos.once, arguments: {n: {$ref: steps.third.result.n}}, depends_on: [second], retry: {max_attempts: 20, delay: 0.2s, factor: 1}}
    - {id: fifth, tool: chaos.keyed, arguments: {n: {$ref: steps.fourth.result.n}}, retry: {max_attempts: 20, delay: 0.2s, factor: 1}}
rules:
- name: fresh
  when: {assumption: fresh}
  reason: a fresh one
  patch:
    assumptions: [{id: fresher, text: The other one is not spoilt}]
    change: [{id: third, action: {arguments: {spoilt: ""}}, expect: {checks: [{expression: result.spoilt == "", message: spoilt, assumption: fresher}]}}]
`

// callTimeout of the tools: short, so that a call that was killed is settled soon.
const callTimeout = 3 * time.Second

// effect is one line of the effects file.
type effect struct {
	Tool, Run, Step, Action, Arguments, Key string
	Attempt                                 int
	// What is "start", "effect" or "repeat": a key that had its effect before.
	What string
}

type toolInput struct {
	N      int    `json:"n"`
	Spoilt string `json:"spoilt,omitempty"`
}

type toolOutput struct {
	N      int    `json:"n"`
	Spoilt string `json:"spoilt"`
}

// ledger appends to the effects file. It stands for the world behind the tools, which survives them.
type ledger struct {
	path string

	mu sync.Mutex
	// done are the keys that had their effect, as far as the file was read.
	done map[string]bool
	read int64
}

// write appends one line; under a lock, so that a look for a key and its effect are one.
func (l *ledger) write(e effect, honourKey bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if honourKey {
		if err := l.catchUp(f); err != nil {
			return err
		}
		if l.done[e.Key] {
			e.What = "repeat"
		}
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return err
}

func (l *ledger) catchUp(f *os.File) error {
	if _, err := f.Seek(l.read, io.SeekStart); err != nil {
		return err
	}
	tail, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(tail) {
		var e effect
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.What == "effect" {
			l.done[e.Key] = true
		}
	}
	l.read += int64(len(tail))
	return nil
}

// serveTools serves one tool that honours keys and one that does not.
func serveTools(addresses, path string) error {
	url, ops, _ := strings.Cut(addresses, " ")
	l := &ledger{path: path, done: map[string]bool{}}
	work := func(keyed bool) func(context.Context, toolInput) (toolOutput, error) {
		return func(ctx context.Context, in toolInput) (toolOutput, error) {
			c := tool.Action(ctx)
			arguments, err := json.Marshal(in)
			if err != nil {
				return toolOutput(in), err
			}
			e := effect{Tool: c.Tool, Run: c.RunID, Step: c.StepID, Action: c.ActionID, Attempt: c.Attempt, Key: c.IdempotencyKey, Arguments: string(arguments)}
			e.What = "start"
			if err := l.write(e, false); err != nil {
				return toolOutput(in), err
			}
			time.Sleep(rand.N(60 * time.Millisecond))
			e.What = "effect"
			return toolOutput(in), l.write(e, keyed)
		}
	}
	return tool.Serve(context.Background(), tool.Config{URL: url, HealthAddr: ops},
		tool.New("chaos.once", work(false), tool.Timeout(callTimeout)),
		tool.New("chaos.keyed", work(true), tool.Timeout(callTimeout), tool.Idempotent()))
}

// checkEffects reads the effects file.
func checkEffects(path string, v *verdict) {
	f, err := os.Open(path)
	if err != nil {
		v.add("effects: %v", err)
		return
	}
	defer func() { _ = f.Close() }()
	perKey, perEffect, starts := map[string]int{}, map[string]map[string]bool{}, map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e effect
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			v.add("effects: %q: %v", lines.Text(), err)
			continue
		}
		switch {
		case e.What == "start" && e.Tool == "chaos.once":
			starts[e.Run+" "+e.Action]++
		case e.What == "repeat":
			v.repeats++
		case e.What == "effect":
			v.effects++
			if e.Tool == "chaos.keyed" {
				perKey[e.Key]++
				one := e.Run + " " + e.Step + " " + e.Arguments
				if perEffect[one] == nil {
					perEffect[one] = map[string]bool{}
				}
				perEffect[one][e.Key] = true
			}
		}
	}
	for k, n := range perKey {
		if n != 1 {
			v.add("key %s had %d effects", k, n)
		}
	}
	for one, keys := range perEffect {
		if len(keys) != 1 {
			v.add("%s had %d keys: the same effect must keep its key", one, len(keys))
		}
	}
	for a, n := range starts {
		if n != 1 {
			v.add("action %s of a tool that is not idempotent was started %d times", a, n)
		}
	}
}
