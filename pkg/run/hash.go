package run

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// writer makes the canonical encoding that hashes and digests cover: every field in a fixed order, lengths before
// contents, so that no two states have the same bytes. It is our own, since protobuf promises no canonical form.
type writer struct{ b []byte }

func (w *writer) uint(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

func (w *writer) int(n int64) { w.b = binary.AppendVarint(w.b, n) }

func (w *writer) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
	} else {
		w.b = append(w.b, 0)
	}
}

func (w *writer) str(s string) {
	w.uint(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) sum(h [32]byte) { w.b = append(w.b, h[:]...) }

// json writes exact text, and keeps an absent value apart from every text.
func (w *writer) json(t *planv1.JsonText) {
	w.bool(t != nil)
	if t != nil {
		w.str(t.GetText())
	}
}

func (w *writer) strs(list []string) {
	w.uint(uint64(len(list)))
	for _, s := range list {
		w.str(s)
	}
}

func (w *writer) artifact(a *runv1.ArtifactRef) {
	w.bool(a != nil)
	if a != nil {
		w.str(a.GetName())
		w.str(a.GetSha256())
		w.int(a.GetSize())
		w.str(a.GetMediaType())
	}
}

func (w *writer) value(v *runv1.Value) {
	switch b := v.GetValue().(type) {
	case *runv1.Value_Inline:
		w.uint(1)
		w.json(b.Inline)
	case *runv1.Value_Artifact:
		w.uint(2)
		w.artifact(b.Artifact)
	default:
		w.uint(0)
	}
}

func (w *writer) err(e *runv1.Error) {
	w.bool(e != nil)
	if e != nil {
		w.str(e.GetCode())
		w.str(e.GetMessage())
		w.int(int64(e.GetClass()))
		w.bool(e.GetRetryable())
		w.json(e.GetDetails())
		w.int(int64(e.GetRetryAfter().AsDuration()))
	}
}

// message writes any message: each populated field as number and content, in the order of their declaration, which is
// the order of their numbers (a test holds that).
func (w *writer) message(m proto.Message) {
	if m == nil || !m.ProtoReflect().IsValid() {
		w.bool(false)
		return
	}
	w.bool(true)
	w.reflected(m.ProtoReflect())
}

func (w *writer) reflected(m protoreflect.Message) {
	if m.Descriptor().FullName() == "cairn.plan.v1.JsonText" {
		w.str(m.Interface().(*planv1.JsonText).GetText())
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		w.uint(uint64(f.Number()))
		v := m.Get(f)
		if !f.IsList() {
			w.single(f, v)
			continue
		}
		list := v.List()
		w.uint(uint64(list.Len()))
		for k := range list.Len() {
			w.single(f, list.Get(k))
		}
	}
	w.uint(0)
}

func (w *writer) single(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		w.reflected(v.Message())
	case protoreflect.StringKind:
		w.str(v.String())
	case protoreflect.BytesKind:
		w.str(string(v.Bytes()))
	case protoreflect.BoolKind:
		w.bool(v.Bool())
	case protoreflect.EnumKind:
		w.int(int64(v.Enum()))
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		w.uint(math.Float64bits(v.Float()))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		w.uint(v.Uint())
	default:
		w.int(v.Int())
	}
}

func (w *writer) digest() [32]byte { return sha256.Sum256(w.b) }

func (w *writer) hex() string {
	h := w.digest()
	return hex.EncodeToString(h[:])
}

// hashValue covers one value: large results are hashed once, not with every change of their step.
func hashValue(v *runv1.Value) [32]byte {
	if v == nil {
		return [32]byte{}
	}
	w := writer{b: make([]byte, 0, 64+len(v.GetInline().GetText()))}
	w.value(v)
	return w.digest()
}

func hashTexts(list []*planv1.JsonText) [32]byte {
	if len(list) == 0 {
		return [32]byte{}
	}
	var w writer
	w.uint(uint64(len(list)))
	for _, t := range list {
		w.json(t)
	}
	return w.digest()
}

// reportDigest is the same for the same report, whatever its id, trace and time.
func reportDigest(r *runv1.Report) string {
	var w writer
	body := r.ProtoReflect()
	field := body.WhichOneof(body.Descriptor().Oneofs().ByName("body"))
	if field == nil {
		return ""
	}
	w.uint(uint64(field.Number()))
	w.reflected(body.Get(field).Message())
	return w.hex()
}

// specDigest covers what a client asked for; the order of keys in JSON values does not matter.
func specDigest(spec *runv1.RunSpec, canonical func(*planv1.JsonText) string) string {
	var w writer
	w.str(spec.GetGoal())
	w.bool(spec.GetPlan() != nil)
	w.str(canonical(spec.GetPlan()))
	w.bool(spec.GetInput() != nil)
	w.str(canonical(spec.GetInput()))
	w.uint(uint64(len(spec.GetLabels())))
	for _, l := range spec.GetLabels() {
		w.str(l.GetKey())
		w.str(l.GetValue())
	}
	w.str(spec.GetMode())
	w.message(spec.GetLimits())
	w.strs(spec.GetAllowedTools())
	w.strs(spec.GetPermissions())
	return w.hex()
}

// Hash covers everything that decides, without times and log positions: the run's record, and the roots of the trees
// over steps, ledger entries and requests.
func (s State) Hash() [32]byte {
	d := s.data()
	var w writer
	w.str(d.runID)
	w.str(d.tenant)
	w.int(int64(d.status))
	w.str(d.bodyDigest)
	w.str(d.planDigest)
	w.int(int64(d.plan.GetVersion()))
	w.uint(uint64(len(d.tools)))
	for _, t := range d.tools {
		w.str(t.GetName())
		w.str(t.GetDigest())
	}
	for _, root := range [...][32]byte{d.steps.hash(), d.undo.hash(), d.actions.hash(), d.planning.hash(), d.inputs.hash()} {
		w.sum(root)
	}
	for _, n := range [...]int{d.steps.len(), d.undo.len(), d.actions.len(), d.planning.len(), d.inputs.len()} {
		w.uint(uint64(n))
	}
	w.json(d.answer)
	w.artifact(d.answerArtifact)
	w.err(d.err)
	w.int(int64(d.replans))
	w.int(int64(d.retries))
	w.str(d.cancelReason)
	w.bool(d.cancelGraceOver)
	w.bool(d.deadlineRevision != 0)
	w.bool(d.cancelRevision != 0)
	w.strs(d.warned)
	w.int(d.inlineBytes)
	w.str(d.quarantine)
	w.uint(uint64(len(d.refused)))
	for _, r := range d.refused {
		w.str(r.GetDigest())
	}
	w.uint(uint64(len(d.patches)))
	for _, r := range d.patches {
		w.str(r.GetDigest())
	}
	w.uint(uint64(len(d.fingerprints)))
	for _, f := range d.fingerprints {
		w.str(f.GetDigest())
		w.int(int64(f.GetVersion()))
	}
	return w.digest()
}
