package toolrouter_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/run"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/services/toolrouter"
)

// big returns a JSON string of exactly so many bytes, its quotes included.
func big() *tool.Tool {
	return tool.New("big", func(_ context.Context, in struct {
		Bytes int `json:"bytes"`
	}) (json.RawMessage, error) {
		return json.RawMessage(`"` + strings.Repeat("x", in.Bytes-2) + `"`), nil
	}, tool.Version("1.0.0"), tool.Idempotent())
}

func TestCase60_LargeOutputsBecomeArtifacts(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Errorf("connection: %v", err) })
	w.serve(func(c *tool.Config) { c.MaxOutput = 64 << 20 }, big(), echo())
	artifacts, err := bus.OpenArtifacts(t.Context(), w.js, 0)
	must(t, err)
	for size, inline := range map[int]bool{
		64 << 10: true, 64<<10 + 1: false, 1_048_577: false, 1_500_000: false, 9 << 20: false, 32 << 20: false,
	} {
		o := w.do(call(w.newRun(), "s-1", "big", number(`{"bytes":%}`, size)))
		text := success(t, o)
		if inline {
			if len(text) != size {
				t.Errorf("%d bytes: inline %d", size, len(text))
			}
			continue
		}
		ref := o.GetOutput().GetArtifact()
		if ref.GetSize() != int64(size) {
			t.Errorf("%d bytes: artifact %v", size, ref)
			continue
		}
		data, err := artifacts.Get(t.Context(), ref.GetSha256())
		must(t, err)
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != ref.GetSha256() || len(data) != size {
			t.Errorf("%d bytes: the artifact has %d bytes", size, len(data))
		}
	}
	for _, size := range []int{32<<20 + 1, 33_000_000 + 1<<20} {
		failure(t, w.do(call(w.newRun(), "s-1", "big", number(`{"bytes":%}`, size))), tool.CodeOutputTooLarge)
	}
	// Arguments of 300 KB reach the tool.
	long := `{"text":"` + strings.Repeat("a", 300_000) + `"}`
	if o := w.do(call(w.newRun(), "s-1", "echo", long)); success(t, o) != "" || o.GetOutput().GetArtifact().GetSize() != int64(len(long)) {
		t.Errorf("arguments of 300 KB: %v", o.GetOutput())
	}
	if !w.nc.IsConnected() || w.nc.Stats().Reconnects != 0 {
		t.Error("the connection was closed")
	}
}

func TestTheSDKRefusesOutputsOverItsOwnLimit(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(func(c *tool.Config) { c.MaxOutput = 9 << 20 }, big())
	o := w.do(call(w.newRun(), "s-1", "big", number(`{"bytes":%}`, 9<<20)))
	if success(t, o); o.GetOutput().GetArtifact() == nil {
		t.Errorf("output %v", o.GetOutput())
	}
	failure(t, w.do(call(w.newRun(), "s-1", "big", number(`{"bytes":%}`, 9<<20+1))), tool.CodeOutputTooLarge)
}

func TestMaxInlineBytesIsALimit(t *testing.T) {
	if 2*toolrouter.MaxInlineBytes > run.MaxObservationBytes {
		t.Errorf("an output and a result of %d bytes are more than the core takes inline, %d", toolrouter.MaxInlineBytes, run.MaxObservationBytes)
	}
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, big())
	for size, inline := range map[int]bool{toolrouter.MaxInlineBytes: true, toolrouter.MaxInlineBytes + 1: false} {
		work := call(w.newRun(), "s-1", "big", number(`{"bytes":%}`, size))
		work.GetCall().MaxInlineBytes = 1 << 40
		o := w.do(work)
		if got := len(success(t, o)) == size; got != inline || (o.GetOutput().GetArtifact() != nil) == inline {
			t.Errorf("%d bytes: inline %v", size, got)
		}
	}
}

// A value that was not as expected is shown as the core shows it: whole up to a limit, beyond it as size and sha256.
func TestValuesInErrorsAreBounded(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, big())
	for _, extra := range []int{0, 1} {
		size := run.MaxResultInDetails + extra
		work := call(w.newRun(), "s-1", "big", number(`{"bytes":%}`, size))
		work.GetCall().Result = &planv1.JsonText{Text: `"nothing"`}
		value := `"` + strings.Repeat("x", size-2) + `"`
		want := `{"output":` + value + `}`
		if extra > 0 {
			want = fmt.Sprintf(`{"output_omitted":{"size":%d,"sha256":"%x"}}`, size, sha256.Sum256([]byte(value)))
		}
		if got := failure(t, w.do(work), tool.CodeSchemaMismatch).GetDetails().GetText(); got != want {
			t.Errorf("%d bytes: %.200s", size, got)
		}
	}
}

func TestMaxArtifactBytesIsALimit(t *testing.T) {
	w := withStreams(t)
	w.router(func(c *toolrouter.Config) { c.MaxArtifactBytes = 100_000 })
	w.serve(nil, big())
	if o := w.do(call(runID(1), "s-1", "big", `{"bytes":100000}`)); o.GetOutput().GetArtifact().GetSize() != 100_000 {
		t.Errorf("at the limit: %v", o)
	}
	failure(t, w.do(call(runID(2), "s-1", "big", `{"bytes":100001}`)), tool.CodeOutputTooLarge)
}

func TestCase60_ReferencesIntoArtifactsAreResolved(t *testing.T) {
	w := withStreams(t)
	w.router(nil)
	w.serve(nil, echo())
	work := call(runID(1), "a-1", "echo", `{"items":[{"id":9007199254740993}],"pad":"`+strings.Repeat("p", 100_000)+`"}`)
	ref := w.do(work).GetOutput().GetArtifact()
	if ref == nil {
		t.Fatal("not off-loaded")
	}
	named := func(name string) *runv1.ArtifactRef {
		return &runv1.ArtifactRef{Name: name, Sha256: ref.GetSha256(), Size: ref.GetSize()}
	}
	for i, c := range []struct {
		arguments string
		artifact  *runv1.ArtifactRef
		want      string
		code      string
	}{
		{`{"id":{"$ref":"steps.a.result.items.0.id"}}`, named("steps.a.result"), `{"id":9007199254740993}`, ""},
		{`{"id":{"$ref":"artifacts.list.items.0.id"}}`, named("artifacts.list"), `{"id":9007199254740993}`, ""},
		{`{"id":{"$ref":"steps.a.result.nothing","default":null}}`, named("steps.a.result"), `{"id":null}`, ""},
		{`{"id":{"$ref":"steps.a.result.nothing"}}`, named("steps.a.result"), "", tool.CodeRefUnavailable},
		{`{"id":{"$ref":"steps.a.result.id"}}`, &runv1.ArtifactRef{Name: "steps.a.result", Sha256: strings.Repeat("0", 64)}, "", tool.CodeRefUnavailable},
		// Not listed: data of a tool that looks like a reference.
		{`{"id":{"$ref":"steps.b.result.id"},"n":{"$ref":"steps.a.result.items.0.id"}}`, named("steps.a.result"), `{"id":{"$ref":"steps.b.result.id"},"n":9007199254740993}`, ""},
	} {
		work := call(w.newRun(), "b-1", "echo", c.arguments)
		work.GetCall().Artifacts = []*runv1.ArtifactRef{c.artifact}
		o := w.do(work)
		if c.code != "" {
			failure(t, o, c.code)
		} else if got := success(t, o); got != c.want {
			t.Errorf("%d: the tool got %s, want %s", i, got, c.want)
		}
	}
}
