package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

// sseBacklog is how many events wait for a slow reader before the run store is held back.
const sseBacklog = 16

// lineEnds are characters that stand plainly in JSON but that some readers take for the end of a line.
var lineEnds = []struct{ char, escape []byte }{
	{[]byte("\u0085"), []byte(`\u0085`)}, {[]byte("\u2028"), []byte(`\u2028`)}, {[]byte("\u2029"), []byte(`\u2029`)},
}

// httpWatch sends a run's events as server-sent events: the id is the revision, so that Last-Event-ID resumes exactly.
func (g *gateway) httpWatch(w http.ResponseWriter, r *http.Request, params map[string]string) {
	req, err := watchRequest(r, params["run_id"])
	if err == nil {
		d := &door{limits: g.limits}
		d.watch(req)
		err = d.err()
	}
	if err != nil {
		writeProblem(w, err)
		return
	}
	done, err := g.watching()
	if err != nil {
		writeProblem(w, err)
		return
	}
	defer done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events, end := make(chan *runv1.Event, sseBacklog), make(chan error, 1)
	go func() {
		end <- g.follow(ctx, req, func(e *runv1.Event) error {
			select {
			case events <- e:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		close(events)
	}()
	s := &sseWriter{w: w, rc: http.NewResponseController(w), patience: g.times.Write}
	// Before anything is sent an unknown run can still get its own status, and a client that comes back after the last
	// event is told with 204 to stay away.
	first := time.NewTimer(g.times.FirstEvent)
	defer first.Stop()
	select {
	case e, ok := <-events:
		if !ok {
			if err := <-end; err != nil {
				writeProblem(w, err)
				return
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.begin(g.times.Retry)
		s.event(e)
	case <-first.C:
		s.begin(g.times.Retry)
	case <-ctx.Done():
		return
	}
	g.pump(ctx, s, events, end)
}

// pump writes events as they come, comments while none come, and why it ended where it ended badly.
func (g *gateway) pump(ctx context.Context, s *sseWriter, events <-chan *runv1.Event, end <-chan error) {
	silence := time.NewTicker(g.times.Comment)
	defer silence.Stop()
	for {
		if len(events) == 0 && s.flush() != nil {
			return
		}
		select {
		case e, ok := <-events:
			if !ok {
				if err := <-end; err != nil && ctx.Err() == nil {
					s.problem(err)
					_ = s.flush()
				}
				return
			}
			s.event(e)
			silence.Reset(g.times.Comment)
		case <-silence.C:
			s.buf.WriteString(": still here\n\n")
		case <-ctx.Done():
			return
		}
		if s.buf.Len() > artifactChunk && s.flush() != nil {
			return
		}
	}
}

// watchRequest reads where to begin: the header of a client that comes back wins over the address that it first used.
func watchRequest(r *http.Request, runID string) (*apiv1.WatchRunRequest, error) {
	req := &apiv1.WatchRunRequest{RunId: runID}
	q := r.URL.Query()
	var wrong []violation
	number := func(field, text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			wrong = append(wrong, violation{field, reasonInvalidArgument, fmt.Sprintf("%q is not a whole number of 0 or more", cut(text))})
		}
		return n
	}
	for key := range q {
		switch value := q.Get(key); key {
		case "after", "after_revision":
			req.AfterRevision = number(key, value)
		case "position.partition":
			req.Position = withPosition(req.GetPosition())
			req.Position.Partition = int32(number(key, value))
		case "position.sequence":
			req.Position = withPosition(req.GetPosition())
			req.Position.Sequence = uint64(number(key, value))
		default:
			wrong = append(wrong, violation{key, reasonInvalidArgument, "unknown parameter; there are after, position.partition and position.sequence"})
		}
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		req.AfterRevision = number("Last-Event-ID", id)
	}
	return req, invalid(wrong)
}

func withPosition(p *apiv1.LogPosition) *apiv1.LogPosition {
	if p == nil {
		return &apiv1.LogPosition{}
	}
	return p
}

// sseWriter gathers frames and writes them with a deadline, so that a reader that takes nothing is given up.
type sseWriter struct {
	w        http.ResponseWriter
	rc       *http.ResponseController
	buf      bytes.Buffer
	patience time.Duration
}

func (s *sseWriter) begin(retry time.Duration) {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	fmt.Fprintf(&s.buf, "retry: %d\n\n", retry.Milliseconds())
}

func (s *sseWriter) event(e *runv1.Event) {
	data, err := exactjson.Marshal(e)
	if err != nil {
		s.problem(newProblem(codes.Internal, reasonInternal, "event %s cannot be shown: %v", e.GetId(), err))
		return
	}
	fmt.Fprintf(&s.buf, "id: %d\nevent: %s\ndata: %s\n\n", e.GetRevision(), eventType(e), oneLine(data))
}

// problem tells a client why the stream ends; the frame has no id, so that the client resumes where it was.
func (s *sseWriter) problem(err error) {
	fmt.Fprintf(&s.buf, "event: error\ndata: %s\n\n", oneLine(problemJSON(err)))
}

func (s *sseWriter) flush() error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := s.w.Write(s.buf.Bytes())
	s.buf.Reset()
	if err != nil {
		return err
	}
	return s.rc.Flush()
}

// eventType is the name of an event's body, as in RunCompleted.
func eventType(e *runv1.Event) string {
	m := e.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("body"))
	if f == nil {
		return "Event" // from a newer contract
	}
	return string(f.Message().Name())
}

// oneLine escapes what readers may take for the end of a line. Such characters stand in JSON only inside strings.
func oneLine(data []byte) []byte {
	for _, l := range lineEnds {
		data = bytes.ReplaceAll(data, l.char, l.escape)
	}
	return data
}

// toStatus makes a status of any error, those of contexts among them.
func toStatus(err error) *status.Status {
	if s, ok := status.FromError(err); ok {
		return s
	}
	return status.FromContextError(err)
}
