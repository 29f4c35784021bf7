package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/cairnrun/cairn/pkg/bus"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

// artifactChunk is the size of the pieces in which an artifact is sent.
const artifactChunk = 64 << 10

// artifact opens a payload by its content's hash. Who knows the hash may read it.
func (g *gateway) artifact(ctx context.Context, sha256 string) (jetstream.ObjectResult, error) {
	if !sha256Pattern.MatchString(sha256) {
		return nil, invalid([]violation{{"sha256", reasonInvalidID, "an artifact's name is the sha256 of its bytes, 64 lower-case hexadecimal digits"}})
	}
	if _, err := g.ready(); err != nil {
		return nil, err
	}
	store, err := g.js.ObjectStore(ctx, bus.BucketArtifacts)
	if err != nil {
		return nil, unavailable(reasonBusAway, "bucket %s: %v", bus.BucketArtifacts, err)
	}
	object, err := store.Get(ctx, sha256)
	switch {
	case errors.Is(err, jetstream.ErrObjectNotFound):
		return nil, newProblem(codes.NotFound, reasonUnknownArtifact, "there is no artifact %s", sha256)
	case err != nil:
		return nil, unavailable(reasonBusAway, "artifact %s: %v", sha256, err)
	}
	return object, nil
}

func (s *runService) GetArtifact(r *apiv1.GetArtifactRequest, out grpc.ServerStreamingServer[apiv1.GetArtifactResponse]) error {
	object, err := s.g.artifact(out.Context(), r.GetSha256())
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }()
	// gRPC keeps no message after it is sent.
	buf := make([]byte, artifactChunk)
	for {
		n, err := io.ReadFull(object, buf)
		if n > 0 {
			if err := out.Send(&apiv1.GetArtifactResponse{Chunk: buf[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return newProblem(codes.DataLoss, reasonInternal, "artifact %s broke off: %v", r.GetSha256(), err)
		}
	}
}

// httpArtifact serves the plain bytes.
func (g *gateway) httpArtifact(w http.ResponseWriter, r *http.Request, params map[string]string) {
	sum := params["sha256"]
	object, err := g.artifact(r.Context(), sum)
	if err != nil {
		writeProblem(w, err)
		return
	}
	defer func() { _ = object.Close() }()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	if info, err := object.Info(); err == nil {
		h.Set("Content-Length", strconv.FormatUint(info.Size, 10))
	}
	h.Set("ETag", `"`+sum+`"`)
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	rc := http.NewResponseController(w)
	buf := make([]byte, artifactChunk)
	for {
		n, err := io.ReadFull(object, buf)
		if n > 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(g.times.Write))
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return
		case err != nil:
			g.log.Warn("artifact broke off", "sha256", sum, "error", err)
			panic(http.ErrAbortHandler) // the client must not take the part for the whole
		}
	}
}
