package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/pkg/tool"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// wfCase is a scientific workflow: every task is a sha256 over its inputs.
type wfCase struct {
	ID    string     `json:"id"`
	Tools []toolSpec `json:"tools"`
	Steps []step     `json:"steps"`
	Gold  struct {
		CriticalPathS float64           `json:"critical_path_s"`
		FinalDigest   string            `json:"final_digest"`
		Digest12      map[string]string `json:"digest12"`
	} `json:"gold"`
	// copies of the instance in one plan; 0: the instance itself.
	copies int
}

// manySteps is the size from which a plan counts as large.
const manySteps = 10_000

func runWfinstances(ctx context.Context, folder string, _ options) (*tally, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no instances in %s: %v", folder, err)
	}
	var cases []*wfCase
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		c := &wfCase{}
		if err := json.Unmarshal(b, c); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		cases = append(cases, c)
	}
	largest := slices.MaxFunc(cases, func(a, b *wfCase) int { return len(a.Steps) - len(b.Steps) })
	big, err := largest.times((manySteps + len(largest.Steps) - 1) / len(largest.Steps))
	if err != nil {
		return nil, err
	}
	clocks := newByRun[*virtualClock]()
	spec := cases[0].Tools[0]
	task := tool.New(spec.Name, func(ctx context.Context, in struct {
		Program string   `json:"program"`
		Key     string   `json:"key"`
		Seconds float64  `json:"seconds"`
		Inputs  []string `json:"inputs"`
	}) (map[string]string, error) {
		clock, err := clocks.get(ctx, tool.Action(ctx).RunID)
		if err != nil {
			return nil, err
		}
		if clock != nil { // large plans run without a clock
			if err := clock.work(ctx, tool.Action(ctx).ActionID, in.Seconds); err != nil {
				return nil, err
			}
		}
		sum := sha256.Sum256([]byte(strings.Join(append([]string{in.Program, in.Key}, in.Inputs...), "\n")))
		return map[string]string{"digest": hex.EncodeToString(sum[:])}, nil
	}, tool.InputSchema(string(spec.InputSchema)), tool.OutputSchema(string(spec.OutputSchema)), tool.Idempotent(), tool.Concurrency(4096))
	s, err := start(ctx, shape{}, task)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.observer.setOnCommit(func(runID string) {
		if clock, ok := clocks.now(runID); ok && clock != nil {
			clock.move()
		}
	})
	t := &tally{}
	eachCase(ctx, append(cases, big), 2, func(ctx context.Context, c *wfCase) {
		plan, err := document("compute "+c.ID, c.Steps, nil)
		if err != nil {
			t.add(c.ID, err.Error())
			return
		}
		parallel := int32(1000)
		if c.copies > 0 {
			parallel = 256
		}
		got, err := s.submit(ctx, c.ID, plan, parallel)
		if err != nil {
			t.add(c.ID, "submit: "+err.Error())
			return
		}
		var clock *virtualClock
		if c.copies == 0 {
			clock = newVirtualClock(s.observer, got.GetRunId())
		}
		clocks.put(got.GetRunId(), clock)
		state, problem := s.finished(ctx, got.GetRunId(), got.GetPosition())
		if problem != "" {
			t.add(c.ID, problem)
			return
		}
		problems := c.problems(state)
		if clock != nil {
			if span, _ := clock.end(); math.Abs(span-c.Gold.CriticalPathS) > 0.01 {
				problems = append(problems, fmt.Sprintf("ended at %g s, critical path %g s", span, c.Gold.CriticalPathS))
			}
		}
		t.add(c.ID, problems...)
	})
	return t, nil
}

// times makes n disjoint copies of an instance in one plan, step ids c1_t1, c2_t1, ….
func (c *wfCase) times(n int) (*wfCase, error) {
	big := &wfCase{ID: fmt.Sprintf("%s-x%d", c.ID, n), Tools: c.Tools, Gold: c.Gold, copies: n}
	for i := 1; i <= n; i++ {
		prefix := fmt.Sprintf("c%d_", i)
		for _, s := range c.Steps {
			var args map[string]json.RawMessage
			if err := json.Unmarshal(s.Arguments, &args); err != nil {
				return nil, err
			}
			args["inputs"] = json.RawMessage(strings.ReplaceAll(string(args["inputs"]), `"steps.`, `"steps.`+prefix))
			text, err := json.Marshal(args)
			if err != nil {
				return nil, err
			}
			copied := step{ID: prefix + s.ID, Tool: s.Tool, Arguments: text}
			for _, d := range s.DependsOn {
				copied.DependsOn = append(copied.DependsOn, prefix+d)
			}
			big.Steps = append(big.Steps, copied)
		}
	}
	return big, nil
}

func (c *wfCase) problems(state *runv1.RunState) []string {
	digests := map[string]string{}
	for _, s := range state.GetSteps() {
		var r struct {
			Digest string `json:"digest"`
		}
		if err := json.Unmarshal([]byte(s.GetResult().GetInline().GetText()), &r); err != nil {
			return []string{fmt.Sprintf("step %s: result %v: %v", s.GetStepId(), s.GetResult(), err)}
		}
		digests[s.GetStepId()] = r.Digest
	}
	var out []string
	prefixes := []string{""}
	if c.copies > 0 {
		prefixes = nil
		for i := 1; i <= c.copies; i++ {
			prefixes = append(prefixes, fmt.Sprintf("c%d_", i))
		}
	}
	for _, prefix := range prefixes {
		for id, want := range c.Gold.Digest12 {
			if got := digests[prefix+id]; len(got) < 12 || got[:12] != want {
				out = append(out, fmt.Sprintf("step %s%s: digest %s, gold %s", prefix, id, got, want))
			}
		}
		if got := c.finalDigest(digests, prefix); got != c.Gold.FinalDigest {
			out = append(out, fmt.Sprintf("copy %q: final digest %s, gold %s", prefix, got, c.Gold.FinalDigest))
		}
	}
	if len(out) > 5 {
		out = append(out[:5], fmt.Sprintf("%d more", len(out)-5))
	}
	return out
}

// finalDigest is over the digests of the last steps, by ascending step number.
func (c *wfCase) finalDigest(digests map[string]string, prefix string) string {
	var own []step
	for _, s := range c.Steps {
		if strings.HasPrefix(s.ID, prefix) {
			own = append(own, s)
		}
	}
	last := lastSteps(own)
	number := func(id string) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(id, prefix), "t")) // 0 sorts first; the digest then differs
		return n
	}
	slices.SortFunc(last, func(a, b string) int { return number(a) - number(b) })
	var all []string
	for _, id := range last {
		all = append(all, digests[id])
	}
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:])
}
