package bus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// DefaultMaxArtifactBytes is the largest artifact that is taken where nothing else is configured, 32 MiB.
const DefaultMaxArtifactBytes = 32 << 20

// Errors of the artifact store that callers branch on.
var (
	// ErrArtifactTooLarge: over the store's limit.
	ErrArtifactTooLarge = errors.New("artifact too large")
	// ErrArtifactMissing: nothing is stored under this hash.
	ErrArtifactMissing = errors.New("artifact missing")
	// ErrArtifactCorrupt: the content does not have the hash it is stored under.
	ErrArtifactCorrupt = errors.New("artifact corrupt")
)

// Artifacts keeps payloads by the sha256 of their content.
type Artifacts struct {
	store    jetstream.ObjectStore
	maxBytes int64
}

// OpenArtifacts opens the store, with a limit in bytes for one artifact; 0 means DefaultMaxArtifactBytes. The error wraps
// ErrMissing where the bucket is not there.
func OpenArtifacts(ctx context.Context, js jetstream.JetStream, maxBytes int64) (*Artifacts, error) {
	store, err := js.ObjectStore(ctx, BucketArtifacts)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("%w: %s; create streams with: cairn init --nats URL", ErrMissing, BucketArtifacts)
	} else if err != nil {
		return nil, fmt.Errorf("open %s: %w", BucketArtifacts, err)
	}
	if maxBytes == 0 {
		maxBytes = DefaultMaxArtifactBytes
	}
	return &Artifacts{store: store, maxBytes: maxBytes}, nil
}

// Put stores data, once however often it is put, and returns its reference under a name for people.
func (a *Artifacts) Put(ctx context.Context, name, mediaType string, data []byte) (*runv1.ArtifactRef, error) {
	if int64(len(data)) > a.maxBytes {
		return nil, fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrArtifactTooLarge, name, len(data), a.maxBytes)
	}
	sum := sha256.Sum256(data)
	ref := &runv1.ArtifactRef{Name: name, Sha256: hex.EncodeToString(sum[:]), Size: int64(len(data)), MediaType: mediaType}
	if info, err := a.store.GetInfo(ctx, ref.Sha256); err == nil && info.Size == uint64(len(data)) {
		return ref, nil
	}
	header := nats.Header{}
	header.Set("Content-Type", mediaType)
	if _, err := a.store.Put(ctx, jetstream.ObjectMeta{Name: ref.Sha256, Headers: header}, bytes.NewReader(data)); err != nil {
		return nil, fmt.Errorf("store artifact %s: %w", name, err)
	}
	return ref, nil
}

// Get returns the content with this hash, checked.
func (a *Artifacts) Get(ctx context.Context, sha string) ([]byte, error) {
	result, err := a.store.Get(ctx, sha)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("%w: %s", ErrArtifactMissing, sha)
	} else if err != nil {
		return nil, fmt.Errorf("read artifact %s: %w", sha, err)
	}
	defer func() { _ = result.Close() }()
	data, err := io.ReadAll(io.LimitReader(result, a.maxBytes+1))
	if errors.Is(err, jetstream.ErrDigestMismatch) {
		return nil, fmt.Errorf("%w: %s", ErrArtifactCorrupt, sha)
	} else if err != nil {
		return nil, fmt.Errorf("read artifact %s: %w", sha, err)
	}
	if int64(len(data)) > a.maxBytes {
		return nil, fmt.Errorf("%w: %s is over the limit of %d bytes", ErrArtifactTooLarge, sha, a.maxBytes)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != sha {
		return nil, fmt.Errorf("%w: %s", ErrArtifactCorrupt, sha)
	}
	return data, nil
}
