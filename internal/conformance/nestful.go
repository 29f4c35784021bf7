package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// nestfulCase: a tool answers only to the recorded arguments; the last value must be the gold answer.
type nestfulCase struct {
	ID       string     `json:"id"`
	Goal     string     `json:"goal"`
	Tools    []toolSpec `json:"tools"`
	Steps    []step     `json:"steps"`
	Recorded []struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Output    json.RawMessage `json:"output"`
	} `json:"recorded"`
	Gold struct {
		Answer json.RawMessage `json:"answer"`
		Final  json.RawMessage `json:"final"`
	} `json:"gold"`
}

func runNestful(ctx context.Context, folder string, _ options) (*tally, error) {
	cases, err := readLines[*nestfulCase](filepath.Join(folder, "cases.jsonl"))
	if err != nil {
		return nil, err
	}
	running := newByRun[*nestfulCase]()
	var specs []toolSpec
	for _, c := range cases {
		specs = append(specs, c.Tools...)
	}
	var tools []*tool.Tool
	for _, spec := range distinct(specs) {
		answer := func(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
			c, err := running.get(ctx, tool.Action(ctx).RunID)
			if err != nil {
				return nil, err
			}
			for _, r := range c.Recorded {
				if r.Tool == spec.Name && canonical(r.Arguments) == canonical(args) {
					return r.Output, nil
				}
			}
			return nil, tool.Errorf("unexpected_arguments", "%s was not recorded with %s", spec.Name, args)
		}
		tools = append(tools, tool.New(spec.Name, answer, tool.InputSchema(inputSchema(spec, cases)), tool.OutputSchema("true"),
			tool.Description(spec.Description), tool.Idempotent(), tool.Concurrency(64)))
	}
	s, err := start(ctx, shape{}, tools...)
	if err != nil {
		return nil, err
	}
	defer s.close()
	t := &tally{}
	for _, parallel := range []int32{1, 64} {
		eachCase(ctx, cases, 16, func(ctx context.Context, c *nestfulCase) {
			name := fmt.Sprintf("%s at %d in parallel", c.ID, parallel)
			plan, err := document(c.Goal, c.Steps, map[string]any{"answer": c.Gold.Final})
			if err != nil {
				t.add(name, err.Error())
				return
			}
			got, err := s.submit(ctx, fmt.Sprintf("%d-%s", parallel, c.ID), plan, parallel)
			if err != nil {
				t.add(name, "submit: "+err.Error())
				return
			}
			running.put(got.GetRunId(), c)
			state, problem := s.finished(ctx, got.GetRunId(), got.GetPosition())
			if problem != "" {
				t.add(name, problem)
				return
			}
			var answer struct {
				Answer json.RawMessage `json:"answer"`
			}
			if err := json.Unmarshal([]byte(state.GetAnswer().GetText()), &answer); err != nil {
				t.add(name, "answer: "+err.Error())
				return
			}
			if !nestfulEqual(answer.Answer, c.Gold.Answer) {
				t.add(name, fmt.Sprintf("answer %s, gold %s", answer.Answer, c.Gold.Answer))
				return
			}
			t.add(name)
		})
	}
	return t, nil
}

// inputSchema is the tool's own, but where the data contradicts itself: two tools were recorded with arguments that their
// schemas forbid (floor of 2.1 declared as an integer's), and the router would rightly refuse them.
func inputSchema(spec toolSpec, cases []*nestfulCase) string {
	for _, c := range cases {
		for _, r := range c.Recorded {
			if r.Tool == spec.Name && len(plan.ValidateSchema(&planv1.JsonText{Text: string(spec.InputSchema)}, &planv1.JsonText{Text: string(r.Arguments)})) > 0 {
				fmt.Fprintf(os.Stderr, "nestful: %s was recorded with arguments that its schema forbids (%s); it is registered with an open schema\n", spec.Name, r.Arguments)
				return `{"type":"object"}`
			}
		}
	}
	return string(spec.InputSchema)
}

// nestfulEqual is the data set's own rule: two floats are equal when they are after rounding to the gold's decimals.
func nestfulEqual(got, want json.RawMessage) bool {
	w, g := string(want), string(got)
	if strings.Contains(w, ".") && !strings.Contains(w, "e") && !strings.HasPrefix(w, `"`) {
		gold, err1 := strconv.ParseFloat(w, 64)
		have, err2 := strconv.ParseFloat(g, 64)
		if err1 == nil && err2 == nil {
			scale := math.Pow(10, float64(len(w)-strings.IndexByte(w, '.')-1))
			return math.Abs(math.RoundToEven(have*scale)/scale-gold) < 1e-9*math.Max(1, math.Abs(gold))
		}
	}
	return canonical(got) == canonical(want)
}
