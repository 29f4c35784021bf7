package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
	"github.com/cairnrun/cairn/services/gateway/openapi"
	stub "github.com/cairnrun/cairn/services/gateway/stub/cairn/api/v1"
)

// The runtime has one parser of query parameters for the whole process, whichever mux the option is given to; the stock
// one takes unknown names silently.
func init() { runtime.SetQueryParameterParser(strictQuery{})(nil) }

// handler answers HTTP: the generated paths by calling the services in this process, and those that gRPC has no form for.
func (g *gateway) handler(ctx context.Context) (http.Handler, error) {
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, marshaler{}),
		runtime.WithErrorHandler(httpError),
		runtime.WithRoutingErrorHandler(routingError),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisablePathLengthFallback(),
		runtime.WithIncomingHeaderMatcher(func(string) (string, bool) { return "", false }),
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
	)
	err := errors.Join(
		stub.RegisterRunServiceHandlerServer(ctx, mux, g.runs),
		stub.RegisterQueryServiceHandlerServer(ctx, mux, g.queries),
		stub.RegisterToolServiceHandlerServer(ctx, mux, g.tools),
		// Handlers added later come first.
		mux.HandlePath(http.MethodGet, "/v1/runs/{run_id}/watch", g.httpWatch),
		mux.HandlePath(http.MethodGet, "/v1/runs/{run_id}:export", g.httpExport),
		mux.HandlePath(http.MethodGet, "/v1/artifacts/{sha256}", g.httpArtifact),
	)
	if err != nil {
		return nil, fmt.Errorf("HTTP paths: %w", err)
	}
	calls := g.traced(g.authenticatedHTTP(g.withBody(mux)))
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch r.URL.Path {
		case "/livez":
			_, _ = io.WriteString(w, "ok\n")
		case "/readyz":
			if err := g.state.Load().err; err != nil {
				http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, "ok\n")
		case "/openapi.json":
			w.Header().Set("Content-Type", contentTypeJSON)
			_, _ = w.Write(openapi.Document)
		default:
			if err := g.sameOrigin(origins, r); err != nil {
				writeProblem(w, err)
				return
			}
			calls.ServeHTTP(w, r)
		}
	}), nil
}

// sameOrigin keeps web pages of strangers from calling a gateway that asks for no token: neither by a plain form or
// fetch, nor under a name of theirs that resolves to this machine.
func (g *gateway) sameOrigin(origins *http.CrossOriginProtection, r *http.Request) error {
	if err := origins.Check(r); err != nil {
		return newProblem(codes.PermissionDenied, reasonForbiddenOrigin, "the request comes from a web page of another origin")
	}
	if g.tokens == nil && g.loopback && !loopback(r.Host) {
		return newProblem(codes.PermissionDenied, reasonForbiddenOrigin, "host %q is not this machine; call the gateway by the address it listens on", cut(r.Host))
	}
	return nil
}

func (g *gateway) authenticatedHTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, err := g.tokens.tenant(r.Header.Get("Authorization"), r.Header.Get(tenantHeader))
		if err != nil {
			if toStatus(err).Code() == codes.Unauthenticated {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			writeProblem(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(withTenant(r.Context(), tenant)))
	})
}

// withBody reads a request's body, bounded in size and time, before anything is done with it.
func (g *gateway) withBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 && len(r.TransferEncoding) == 0 {
			r.Body = &body{Reader: bytes.NewReader(nil)}
			next.ServeHTTP(w, r)
			return
		}
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && !acceptedType(kind) {
			writeProblem(w, newProblem(codes.InvalidArgument, reasonInvalidArgument, "Content-Type %s is not taken: send application/json", cut(kind)))
			return
		}
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(g.times.Body))
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(g.limits.MaxRequestBytes)))
		var over *http.MaxBytesError
		switch {
		case errors.As(err, &over):
			writeProblem(w, newProblem(codes.ResourceExhausted, reasonTooLarge, "the body is over %d bytes, the limit max_request_bytes", over.Limit))
			return
		case err != nil:
			writeProblem(w, newProblem(codes.InvalidArgument, reasonInvalidArgument, "the body did not arrive: %v", err))
			return
		}
		_ = rc.SetReadDeadline(time.Time{})
		r.Body = &body{Reader: bytes.NewReader(data)}
		next.ServeHTTP(w, r)
	})
}

// acceptedType also takes what curl -d says by default; web pages are kept out by sameOrigin.
func acceptedType(kind string) bool {
	return kind == contentTypeJSON || kind == "application/x-www-form-urlencoded" || strings.HasSuffix(kind, "+json")
}

// httpExport sends a run's commits as lines of JSON, the form that cairn replay reads.
func (g *gateway) httpExport(w http.ResponseWriter, r *http.Request, params map[string]string) {
	rc := http.NewResponseController(w)
	begun := false
	err := g.export(r.Context(), &apiv1.ExportRunRequest{RunId: params["run_id"]}, func(resp *apiv1.ExportRunResponse) error {
		line, err := exactjson.Marshal(resp)
		if err != nil {
			return err
		}
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		_ = rc.SetWriteDeadline(time.Now().Add(g.times.Write))
		_, err = w.Write(append(line, '\n'))
		return err
	})
	switch {
	case err != nil && !begun:
		writeProblem(w, err)
	case err != nil:
		panic(http.ErrAbortHandler) // the client must not take the part for the whole
	}
}

// strictQuery refuses parameters that name no field, as bodies do.
type strictQuery struct{ runtime.DefaultQueryParser }

func (q strictQuery) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	for key := range values {
		d := m.ProtoReflect().Descriptor()
		for i, part := range strings.Split(key, ".") {
			if i > 0 && d == nil {
				return fmt.Errorf("unknown parameter %q", cut(key))
			}
			f := d.Fields().ByTextName(part)
			if f == nil {
				return fmt.Errorf("unknown parameter %q", cut(key))
			}
			d = f.Message()
		}
	}
	return q.DefaultQueryParser.Parse(m, values, filter)
}

func httpError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	if b, ok := r.Body.(*body); ok {
		if p := b.problem(); p != nil {
			err = p
		}
	}
	writeProblem(w, err)
}

func routingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, httpStatus int) {
	switch httpStatus {
	case http.StatusMethodNotAllowed:
		writeProblem(w, newProblem(codes.Unimplemented, reasonMethod, "%s is not done on %s", r.Method, cut(r.URL.Path)))
	default:
		writeProblem(w, newProblem(codes.NotFound, reasonNotFound, "there is no path %s; /openapi.json lists them", cut(r.URL.Path)))
	}
}

// writeProblem answers an error with the HTTP status of its code, or of its reason where that says more.
func writeProblem(w http.ResponseWriter, err error) {
	s := toStatus(err)
	httpStatus, ok := httpStatuses[reasonOf(err)]
	if !ok {
		httpStatus = runtime.HTTPStatusFromCode(s.Code())
	}
	h := w.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", contentTypeJSON)
	if d := retryOf(s); d > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	}
	w.WriteHeader(httpStatus)
	_, _ = w.Write(append(problemJSON(err), '\n'))
}

// problemJSON shows an error: code and status are gRPC's, the details those that a gRPC client gets.
func problemJSON(err error) []byte {
	s := toStatus(err)
	if reasonOf(err) == "" {
		if with, err := s.WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: snake(s.Code().String())}); err == nil {
			s = with
		}
	}
	b := fmt.Appendf(nil, `{"code":%d,"status":%q,"message":%s`, s.Code(), snake(s.Code().String()), quote(s.Message()))
	b = append(b, `,"details":[`...)
	first := true
	for _, d := range s.Proto().GetDetails() {
		text, err := exactjson.Marshal(d)
		if err != nil {
			continue // a detail of a kind that this binary does not know
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, text...)
	}
	return append(b, "]}"...)
}

// snake turns InvalidArgument into invalid_argument.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quote makes a JSON string.
func quote(s string) []byte {
	b, _ := json.Marshal(s) // a string always encodes
	return b
}
