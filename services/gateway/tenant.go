package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

const (
	// tenantHeader is the HTTP header and the gRPC metadata key that names the tenant.
	tenantHeader  = "cairn-tenant"
	defaultTenant = "default"
	minTokenBytes = 16
)

// idPattern is what names may look like that become part of subjects and keys.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// tokens maps the sha256 of a bearer token to its tenant, so that comparing takes the same time whatever is guessed.
type tokens map[[sha256.Size]byte]string

// readTokens reads lines of "token tenant"; empty lines and lines that begin with # are skipped.
func readTokens(path string) (tokens, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokens file: %w", err)
	}
	known := tokens{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		switch {
		case len(fields) != 2:
			return nil, fmt.Errorf("tokens file %s, line %d: a token and a tenant are expected, separated by a space", path, n)
		case len(fields[0]) < minTokenBytes:
			return nil, fmt.Errorf("tokens file %s, line %d: the token is shorter than %d characters", path, n, minTokenBytes)
		case !idPattern.MatchString(fields[1]):
			return nil, fmt.Errorf("tokens file %s, line %d: tenant %q is not of the form [A-Za-z0-9_-]{1,64}", path, n, fields[1])
		}
		known[sha256.Sum256([]byte(fields[0]))] = fields[1]
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("tokens file %s: %w", path, err)
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("tokens file %s holds no token: nobody could call; add a line: token tenant", path)
	}
	return known, nil
}

// tenant returns whom a call speaks for. A nil receiver takes the caller's word.
func (t tokens) tenant(authorization, asked string) (string, error) {
	if asked != "" && !idPattern.MatchString(asked) {
		return "", invalid([]violation{{tenantHeader, reasonInvalidID, "a tenant is of the form [A-Za-z0-9_-]{1,64}"}})
	}
	if t == nil {
		if asked == "" {
			return defaultTenant, nil
		}
		return asked, nil
	}
	token, ok := strings.CutPrefix(authorization, "Bearer ")
	if !ok {
		return "", newProblem(codes.Unauthenticated, reasonUnauthenticated, "no bearer token: send the header Authorization: Bearer TOKEN")
	}
	owner, ok := t[sha256.Sum256([]byte(strings.TrimSpace(token)))]
	switch {
	case !ok:
		return "", newProblem(codes.Unauthenticated, reasonUnauthenticated, "the bearer token is unknown")
	case asked != "" && asked != owner:
		return "", newProblem(codes.PermissionDenied, reasonForbidden, "the token belongs to another tenant than %s; leave the header %s out", asked, tenantHeader)
	}
	return owner, nil
}

type tenantKey struct{}

func withTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

func tenantOf(ctx context.Context) string {
	if t, ok := ctx.Value(tenantKey{}).(string); ok {
		return t
	}
	return defaultTenant
}

// authenticated puts the tenant into the context of a gRPC call.
func (t tokens) authenticated(ctx context.Context, method string) (context.Context, error) {
	if strings.HasPrefix(method, "/grpc.health.v1.Health/") {
		return ctx, nil
	}
	first := func(key string) string {
		if v := metadata.ValueFromIncomingContext(ctx, key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	tenant, err := t.tenant(first("authorization"), first(tenantHeader))
	if err != nil {
		return nil, err
	}
	return withTenant(ctx, tenant), nil
}

func (t tokens) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	ctx, err := t.authenticated(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (t tokens) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, err := t.authenticated(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return next(srv, tenantStream{s, ctx})
}

type tenantStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s tenantStream) Context() context.Context { return s.ctx }

// checkListen refuses an address that others can reach when anybody could then submit runs.
func checkListen(address string, authenticated, insecure bool) error {
	if loopback(address) || authenticated || insecure {
		return nil
	}
	return fmt.Errorf("the gateway would listen on %s, which other machines can reach, without authentication: "+
		"give a file of tokens with --tokens, listen on 127.0.0.1, or allow it with --insecure", address)
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
