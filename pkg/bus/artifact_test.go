package bus_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
)

func TestArtifactIsFoundByItsContent(t *testing.T) {
	js := connect(t)
	a, err := bus.OpenArtifacts(t.Context(), js, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("读✅"), 50_000)
	for range 2 {
		ref, err := a.Put(t.Context(), "answer", "text/plain", data)
		if err != nil {
			t.Fatal(err)
		}
		if ref.GetSize() != int64(len(data)) || ref.GetName() != "answer" || len(ref.GetSha256()) != 64 {
			t.Errorf("ref %v", ref)
		}
		got, err := a.Get(t.Context(), ref.GetSha256())
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
	}
}

func TestArtifactAtAndOverTheLimit(t *testing.T) {
	js := connect(t)
	a, err := bus.OpenArtifacts(t.Context(), js, 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Put(t.Context(), "x", "", make([]byte, 100)); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, err := a.Put(t.Context(), "x", "", make([]byte, 101)); !errors.Is(err, bus.ErrArtifactTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
}

func TestMissingAndCorruptArtifacts(t *testing.T) {
	js := connect(t)
	a, err := bus.OpenArtifacts(t.Context(), js, 0)
	if err != nil {
		t.Fatal(err)
	}
	sha := strings.Repeat("0", 64)
	if _, err := a.Get(t.Context(), sha); !errors.Is(err, bus.ErrArtifactMissing) {
		t.Errorf("missing: %v", err)
	}
	store, err := js.ObjectStore(t.Context(), bus.BucketArtifacts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.PutBytes(t.Context(), sha, []byte("something else")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Get(t.Context(), sha); !errors.Is(err, bus.ErrArtifactCorrupt) {
		t.Errorf("corrupt: %v", err)
	}
	if err := js.DeleteObjectStore(t.Context(), bus.BucketArtifacts); err != nil {
		t.Fatal(err)
	}
	if _, err := bus.OpenArtifacts(t.Context(), js, 0); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("no bucket: %v", err)
	}
	if _, err := js.ObjectStore(t.Context(), bus.BucketArtifacts); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("the bucket was created: %v", err)
	}
}
