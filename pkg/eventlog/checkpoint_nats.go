package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cairnrun/cairn/pkg/bus"
)

// checkpointChunk is the size of the messages that an object is stored in, bytes: large, since each is one file write.
const checkpointChunk = 1 << 20

// NATSCheckpoints is the store in object bucket CAIRN_CHECKPOINTS.
type NATSCheckpoints struct {
	objects jetstream.ObjectStore
}

// NewNATSCheckpoints opens the bucket. A missing one is an error that wraps bus.ErrMissing.
func NewNATSCheckpoints(ctx context.Context, js jetstream.JetStream) (*NATSCheckpoints, error) {
	o, err := js.ObjectStore(ctx, bus.BucketCheckpoints)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: object bucket %s; create streams with: cairn init --nats URL", bus.ErrMissing, bus.BucketCheckpoints)
	}
	if err != nil {
		return nil, fmt.Errorf("object bucket %s: %w", bus.BucketCheckpoints, err)
	}
	return &NATSCheckpoints{objects: o}, nil
}

// Put implements CheckpointStore.
func (s *NATSCheckpoints) Put(ctx context.Context, name string, r io.Reader) error {
	_, err := s.objects.Put(ctx, jetstream.ObjectMeta{Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: checkpointChunk}}, r)
	return err
}

// Get implements CheckpointStore.
func (s *NATSCheckpoints) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return s.objects.Get(ctx, name)
}

// List implements CheckpointStore.
func (s *NATSCheckpoints) List(ctx context.Context) ([]string, error) {
	infos, err := s.objects.List(ctx)
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(infos))
	for _, i := range infos {
		names = append(names, i.Name)
	}
	return names, nil
}

// Delete implements CheckpointStore.
func (s *NATSCheckpoints) Delete(ctx context.Context, name string) error {
	err := s.objects.Delete(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil
	}
	return err
}
