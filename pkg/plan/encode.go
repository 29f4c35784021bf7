package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
)

// Document returns the plan as the document that Parse reads, in one line of JSON with fields in a fixed order.
func Document(p *planv1.Plan) *planv1.JsonText {
	return &planv1.JsonText{Text: string(encoder{}.plan(nil, p))}
}

// PatchDocument returns the patch as the document that ParsePatch reads.
func PatchDocument(p *planv1.Patch) *planv1.JsonText {
	return &planv1.JsonText{Text: string(encoder{}.patch(nil, p))}
}

// Digest returns the sha256 of what a plan says, in lower-case hex: without id, version, parent version and author, and
// with every JSON value in canonical form.
func Digest(p *planv1.Plan) string {
	return hexDigest(encoder{content: true}.plan(nil, p))
}

// PatchDigest returns the sha256 of what a patch does, in lower-case hex: without base version and reason, so that the
// same change proposed again is recognised.
func PatchDigest(p *planv1.Patch) string {
	return hexDigest(encoder{content: true}.patch(nil, p))
}

func hexDigest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// encoder writes messages as documents. With content set it writes only what counts for a digest, canonically.
type encoder struct{ content bool }

// objectWriter puts the commas into an object.
type objectWriter struct {
	out   []byte
	first bool
}

func object(dst []byte) objectWriter { return objectWriter{out: append(dst, '{'), first: true} }

func (w *objectWriter) name(name string) {
	if !w.first {
		w.out = append(w.out, ',')
	}
	w.first = false
	w.out = append(w.out, '"')
	w.out = append(w.out, name...)
	w.out = append(w.out, '"', ':')
}

func (w *objectWriter) end() []byte { return append(w.out, '}') }

func (w *objectWriter) text(name, s string) {
	if s != "" {
		w.name(name)
		w.out = appendString(w.out, s)
	}
}

func (w *objectWriter) int(name string, n int32) {
	if n != 0 {
		w.name(name)
		w.out = strconv.AppendInt(w.out, int64(n), 10)
	}
}

func (w *objectWriter) bool(name string, b bool) {
	if b {
		w.name(name)
		w.out = append(w.out, "true"...)
	}
}

func (w *objectWriter) texts(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.name(name)
	w.out = append(w.out, '[')
	for i, s := range list {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = appendString(w.out, s)
	}
	w.out = append(w.out, ']')
}

func (w *objectWriter) duration(name string, d *durationpb.Duration) {
	if d != nil {
		w.name(name)
		w.out = appendString(w.out, formatDuration(d.AsDuration()))
	}
}

// formatDuration writes seconds, as every message does: 90s, 0.25s.
func formatDuration(d time.Duration) string {
	text := strconv.FormatInt(int64(d/time.Second), 10)
	if fraction := d % time.Second; fraction > 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%09d", fraction), "0")
	}
	return text + "s"
}

func (w *objectWriter) float(name string, f float64) {
	if f != 0 && !math.IsNaN(f) && !math.IsInf(f, 0) {
		w.name(name)
		w.out = strconv.AppendFloat(w.out, f, 'g', -1, 64)
	}
}

func (e encoder) json(w *objectWriter, name string, t *planv1.JsonText) {
	if t == nil {
		return
	}
	w.name(name)
	if e.content {
		w.out = append(w.out, Canonical(t)...)
		return
	}
	v, problems := parseJSON(t.GetText(), lenient(len(t.GetText())))
	if len(problems) > 0 {
		w.out = appendString(w.out, t.GetText())
		return
	}
	w.out = v.Append(w.out)
}

// list writes the elements of a list of messages.
func list[T any](w *objectWriter, name string, items []T, element func([]byte, T) []byte) {
	if len(items) == 0 {
		return
	}
	w.name(name)
	w.out = append(w.out, '[')
	for i, item := range items {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = element(w.out, item)
	}
	w.out = append(w.out, ']')
}

func (e encoder) plan(dst []byte, p *planv1.Plan) []byte {
	w := object(dst)
	if !e.content {
		w.text("id", p.GetId())
		w.int("version", p.GetVersion())
	}
	w.text("goal", p.GetGoal())
	list(&w, "assumptions", p.GetAssumptions(), e.assumption)
	w.texts("constraints", p.GetConstraints())
	list(&w, "acceptance", p.GetAcceptance(), e.check)
	list(&w, "steps", p.GetSteps(), e.step)
	if !e.content {
		w.text("created_by", createdByNames.name(int32(p.GetCreatedBy())))
		w.int("parent_version", p.GetParentVersion())
	}
	return w.end()
}

func (e encoder) patch(dst []byte, p *planv1.Patch) []byte {
	w := object(dst)
	if !e.content {
		// Always there, even 0: a patch without it is refused for that, not read as something else.
		w.name("base_version")
		w.out = strconv.AppendInt(w.out, int64(p.GetBaseVersion()), 10)
	}
	list(&w, "add", p.GetAdd(), e.step)
	list(&w, "update", p.GetUpdate(), e.step)
	w.texts("remove", p.GetRemove())
	list(&w, "assumptions", p.GetAssumptions(), e.assumption)
	w.bool("set_assumptions", p.GetSetAssumptions())
	if !e.content {
		w.text("reason", p.GetReason())
	}
	w.text("goal", p.GetGoal())
	return w.end()
}

func (e encoder) assumption(dst []byte, a *planv1.Assumption) []byte {
	w := object(dst)
	w.text("id", a.GetId())
	w.text("text", a.GetText())
	return w.end()
}

func (e encoder) check(dst []byte, c *planv1.Check) []byte {
	w := object(dst)
	w.name("expression")
	w.out = appendString(w.out, c.GetExpression())
	w.text("message", c.GetMessage())
	w.text("assumption", c.GetAssumption())
	return w.end()
}

func (e encoder) step(dst []byte, s *planv1.Step) []byte {
	w := object(dst)
	w.text("id", s.GetId())
	w.text("title", s.GetTitle())
	w.text("objective", s.GetObjective())
	e.action(&w, "action", s.GetAction())
	w.texts("depends_on", s.GetDependsOn())
	w.text("when", s.GetWhen())
	e.json(&w, "for_each", s.GetForEach())
	w.bool("optional", s.GetOptional())
	w.texts("allowed_tools", s.GetAllowedTools())
	e.json(&w, "result", s.GetResult())
	w.texts("produces", s.GetProduces())
	if x := s.GetExpect(); x != nil {
		w.name("expect")
		inner := object(w.out)
		e.json(&inner, "schema", x.GetSchema())
		list(&inner, "checks", x.GetChecks(), e.check)
		w.out = inner.end()
	}
	if r := s.GetRetry(); r != nil {
		w.name("retry")
		inner := object(w.out)
		inner.int("max_attempts", r.GetMaxAttempts())
		inner.duration("delay", r.GetDelay())
		inner.float("factor", r.GetFactor())
		inner.duration("max_delay", r.GetMaxDelay())
		inner.texts("on", r.GetOn())
		w.out = inner.end()
	}
	w.text("on_failure", policyNames.name(int32(s.GetOnFailure())))
	e.action(&w, "compensate", s.GetCompensate())
	w.text("risk", riskNames.name(int32(s.GetRisk())))
	w.bool("confirm", s.GetConfirm())
	return w.end()
}

func (e encoder) action(w *objectWriter, name string, a *planv1.Action) {
	if a == nil {
		return
	}
	w.name(name)
	inner := object(w.out)
	inner.text("kind", kindNames.name(int32(a.GetKind())))
	inner.text("name", a.GetName())
	args := a.GetArguments()
	if args == nil {
		args = &planv1.JsonText{Text: "{}"}
	}
	e.json(&inner, "arguments", args)
	inner.duration("timeout", a.GetTimeout())
	w.out = inner.end()
}
