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
type writer []byte

func (w writer) uint(n uint64) writer { return binary.AppendUvarint(w, n) }

func (w writer) int(n int64) writer { return binary.AppendVarint(w, n) }

func (w writer) bool(v bool) writer {
	if v {
		return append(w, 1)
	}
	return append(w, 0)
}

func (w writer) str(s string) writer {
	return append(w.uint(uint64(len(s))), s...)
}

func (w writer) sum(h [32]byte) writer { return append(w, h[:]...) }

// json writes exact text, and keeps an absent value apart from every text.
func (w writer) json(t *planv1.JsonText) writer {
	w = w.bool(t != nil)
	if t != nil {
		w = w.str(t.GetText())
	}
	return w
}

func (w writer) strs(list []string) writer {
	w = w.uint(uint64(len(list)))
	for _, s := range list {
		w = w.str(s)
	}
	return w
}

func (w writer) artifact(a *runv1.ArtifactRef) writer {
	w = w.bool(a != nil)
	if a != nil {
		w = w.str(a.GetName())
		w = w.str(a.GetSha256())
		w = w.int(a.GetSize())
		w = w.str(a.GetMediaType())
	}
	return w
}

func (w writer) value(v *runv1.Value) writer {
	switch b := v.GetValue().(type) {
	case *runv1.Value_Inline:
		w = w.uint(1)
		w = w.json(b.Inline)
	case *runv1.Value_Artifact:
		w = w.uint(2)
		w = w.artifact(b.Artifact)
	default:
		w = w.uint(0)
	}
	return w
}

func (w writer) err(e *runv1.Error) writer {
	w = w.bool(e != nil)
	if e != nil {
		w = w.str(e.GetCode())
		w = w.str(e.GetMessage())
		w = w.int(int64(e.GetClass()))
		w = w.bool(e.GetRetryable())
		w = w.json(e.GetDetails())
		w = w.int(int64(e.GetRetryAfter().AsDuration()))
	}
	return w
}

// message writes any message: each populated field as number and content, in the order of their declaration, which is
// the order of their numbers (a test holds that).
func (w writer) message(m proto.Message) writer {
	if m == nil || !m.ProtoReflect().IsValid() {
		return w.bool(false)
	}
	return w.bool(true).reflected(m.ProtoReflect())
}

func (w writer) reflected(m protoreflect.Message) writer {
	if m.Descriptor().FullName() == "cairn.plan.v1.JsonText" {
		return w.str(m.Interface().(*planv1.JsonText).GetText())
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !m.Has(f) {
			continue
		}
		w = w.uint(uint64(f.Number()))
		v := m.Get(f)
		if !f.IsList() {
			w = w.single(f, v)
			continue
		}
		list := v.List()
		w = w.uint(uint64(list.Len()))
		for k := range list.Len() {
			w = w.single(f, list.Get(k))
		}
	}
	return w.uint(0)
}

func (w writer) single(f protoreflect.FieldDescriptor, v protoreflect.Value) writer {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return w.reflected(v.Message())
	case protoreflect.StringKind:
		return w.str(v.String())
	case protoreflect.BytesKind:
		return w.str(string(v.Bytes()))
	case protoreflect.BoolKind:
		return w.bool(v.Bool())
	case protoreflect.EnumKind:
		return w.int(int64(v.Enum()))
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return w.uint(math.Float64bits(v.Float()))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return w.uint(v.Uint())
	}
	return w.int(v.Int())
}

func (w writer) digest() [32]byte { return sha256.Sum256(w) }

func (w writer) hex() string {
	h := w.digest()
	return hex.EncodeToString(h[:])
}

// hashValue covers one value: large results are hashed once, not with every change of their step.
func hashValue(v *runv1.Value) [32]byte {
	if v == nil {
		return [32]byte{}
	}
	w := make(writer, 0, 64+len(v.GetInline().GetText()))
	w = w.value(v)
	return w.digest()
}

func hashTexts(list []*planv1.JsonText) [32]byte {
	if len(list) == 0 {
		return [32]byte{}
	}
	var w writer
	w = w.uint(uint64(len(list)))
	for _, t := range list {
		w = w.json(t)
	}
	return w.digest()
}

// reportDigest is the same for the same report, whatever its id, trace and time.
func reportDigest(r *runv1.Report) string {
	w := make(writer, 0, 512)
	body := r.ProtoReflect()
	field := body.WhichOneof(body.Descriptor().Oneofs().ByName("body"))
	if field == nil {
		return ""
	}
	w = w.uint(uint64(field.Number()))
	w = w.reflected(body.Get(field).Message())
	return w.hex()
}

// specDigest covers what a client asked for; the order of keys in JSON values does not matter.
func specDigest(spec *runv1.RunSpec, canonical func(*planv1.JsonText) string) string {
	var w writer
	w = w.str(spec.GetGoal())
	w = w.bool(spec.GetPlan() != nil)
	w = w.str(canonical(spec.GetPlan()))
	w = w.bool(spec.GetInput() != nil)
	w = w.str(canonical(spec.GetInput()))
	w = w.uint(uint64(len(spec.GetLabels())))
	for _, l := range spec.GetLabels() {
		w = w.str(l.GetKey())
		w = w.str(l.GetValue())
	}
	w = w.str(spec.GetMode())
	w = w.message(spec.GetLimits())
	w = w.strs(spec.GetAllowedTools())
	w = w.strs(spec.GetPermissions())
	return w.hex()
}

// Hash covers everything that decides, without times and log positions: the run's record, and the roots of the trees
// over steps, ledger entries and requests.
func (s State) Hash() [32]byte {
	d := s.data()
	w := make(writer, 0, 1024)
	w = w.str(d.runID)
	w = w.str(d.tenant)
	w = w.int(int64(d.status))
	w = w.str(d.bodyDigest)
	w = w.str(d.planDigest)
	w = w.int(int64(d.plan.GetVersion()))
	w = w.uint(uint64(len(d.tools)))
	for _, t := range d.tools {
		w = w.str(t.GetName())
		w = w.str(t.GetDigest())
	}
	for _, root := range [...][32]byte{d.steps.hash(), d.undo.hash(), d.actions.hash(), d.planning.hash(), d.inputs.hash()} {
		w = w.sum(root)
	}
	for _, n := range [...]int{d.steps.len(), d.undo.len(), d.actions.len(), d.planning.len(), d.inputs.len()} {
		w = w.uint(uint64(n))
	}
	w = w.json(d.answer)
	w = w.artifact(d.answerArtifact)
	w = w.err(d.err)
	w = w.int(int64(d.replans))
	w = w.int(int64(d.retries))
	w = w.str(d.cancelReason)
	w = w.bool(d.cancelGraceOver)
	w = w.bool(d.deadlineRevision != 0)
	w = w.bool(d.cancelRevision != 0)
	w = w.strs(d.warned)
	w = w.int(d.inlineBytes)
	w = w.str(d.quarantine)
	w = w.uint(uint64(len(d.refused)))
	for _, r := range d.refused {
		w = w.str(r.GetDigest())
	}
	w = w.uint(uint64(len(d.patches)))
	for _, r := range d.patches {
		w = w.str(r.GetDigest())
	}
	w = w.uint(uint64(len(d.fingerprints)))
	for _, f := range d.fingerprints {
		w = w.str(f.GetDigest())
		w = w.int(int64(f.GetVersion()))
	}
	return w.digest()
}
