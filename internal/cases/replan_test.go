package cases

import (
	"fmt"
	"strings"
	"testing"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func replanned(e *runv1.Event) bool { return e.GetReplanRequested() != nil }

func patchRefused(e *runv1.Event) bool { return e.GetPatchRejected() != nil }

// A replanner that gives finished work again does not make it be done again; what touches finished work is refused and asked
// for once more.
func TestCase70_FinishedWorkIsKept(t *testing.T) {
	t.Parallel()
	const s1 = `{"id":"s1","objective":"o","tool":"add","arguments":{"n":1}}`
	const s2 = `{"id":"s2","objective":"o","tool":"add","arguments":{"n":{"$ref":"steps.s1.result.n"}}}`
	broken := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"objective":"o","tool":"broken","arguments":{"code":"resource_missing"},"depends_on":["s2"]}`, id)
	}
	const mended = `{"id":"s3","objective":"o","tool":"add","arguments":{"n":3},"depends_on":["s2"]}`
	first := `{"goal":"g","steps":[` + s1 + "," + s2 + "," + broken("s3") + `]}`
	whole := `{"steps":[` + s1 + "," + s2 + "," + mended + `]}`
	changed := `{"steps":[` + strings.Replace(s1, `"n":1`, `"n":7`, 1) + "," + s2 + "," + mended + `]}`
	for name, c := range map[string]struct {
		answers []string
		refused string
		asked   int
		version int32
	}{
		"the whole plan with a new last step":  {answers: []string{whole}, asked: 1, version: 2},
		"other arguments under a finished id":  {answers: []string{changed, whole}, refused: "step_immutable", asked: 2, version: 2},
		"no steps and no answer":               {answers: []string{`{"steps":[]}`, whole}, refused: "empty_plan", asked: 2, version: 2},
		"a patch that removes a finished step": {answers: []string{`{"base_version":1,"reason":"r","remove":["s1"]}`, whole}, refused: "step_immutable", asked: 2, version: 2},
		"a patch on an older version": {answers: []string{
			`{"base_version":1,"reason":"r","remove":["s3"],"add":[` + broken("s4") + `]}`,
			`{"base_version":1,"reason":"r","remove":["s4"],"add":[` + mended + `]}`,
			`{"base_version":2,"reason":"r","remove":["s4"],"add":[` + strings.Replace(mended, "s3", "s5", 1) + `]}`,
		}, refused: "version_conflict", asked: 3, version: 3},
	} {
		t.Run(name, func(t *testing.T) {
			mark := "case 70 " + name
			model.script(mark, append([]string{first}, c.answers...)...)
			h := shared.submit(t, &runv1.RunSpec{Goal: mark})
			s := h.completed()
			h.did("s1", 1)
			h.did("s2", 1)
			if n := len(h.all(replanned)); n != c.asked || len(model.prompts(mark)) != c.asked+1 {
				t.Errorf("asked %d times in %d prompts:\n%s", n, len(model.prompts(mark)), h.told())
			}
			var codes []string
			for _, e := range h.all(patchRefused) {
				for _, f := range e.GetPatchRejected().GetFindings() {
					codes = append(codes, f.GetCode())
				}
			}
			if got := strings.Join(codes, " "); got != c.refused {
				t.Errorf("refused with %q", got)
			}
			if s.GetPlan().GetVersion() != c.version {
				t.Errorf("version %d", s.GetPlan().GetVersion())
			}
		})
	}
}

// The stock is gone, which a check says: the replanner is told which assumption fell, and nothing is paid.
func TestCase73_FalsifiedAssumptionStopsThePayment(t *testing.T) {
	t.Parallel()
	model.script("case 73", `{"goal":"g","assumptions":[{"id":"in_stock","text":"the phone is in stock"}],"steps":[
		{"id":"stock","objective":"look","tool":"echo","arguments":{"stock":0},"expect":{"checks":[{"expression":"result.stock > 0","message":"out of stock","assumption":"in_stock"}]}},
		{"id":"pay","objective":"pay","tool":"add","arguments":{},"depends_on":["stock"]}]}`,
		`{"patch":null,"answer":"\"sold out\"","reason":"nothing fits"}`)
	h := shared.submit(t, &runv1.RunSpec{Goal: "case 73"})
	s := h.completed()
	failed := h.all(func(e *runv1.Event) bool { return e.GetStepFailed().GetStepId() == "stock" })
	if len(failed) != 1 || failed[0].GetStepFailed().GetError().GetCode() != "check_failed" {
		t.Fatalf("\n%s", h.told())
	}
	asked := h.all(replanned)
	if len(asked) != 1 || strings.Join(asked[0].GetReplanRequested().GetFalsifiedAssumptions(), " ") != "in_stock" || asked[0].GetReplanRequested().GetStepId() != "stock" {
		t.Errorf("%v", asked)
	}
	prompts := model.prompts("case 73")
	if len(prompts) != 2 || !strings.Contains(prompts[1], "in_stock") || !strings.Contains(prompts[1], "out of stock") {
		t.Errorf("%d prompts, the last:\n%s", len(prompts), prompts[len(prompts)-1])
	}
	h.did("pay", 0)
	if s.GetAnswer().GetText() != `"sold out"` || len(h.all(requested("pay"))) != 0 {
		t.Errorf("answer %s\n%s", s.GetAnswer().GetText(), h.told())
	}
}
