// Package client is how the commands reach Cairn: over gRPC where a server runs, else by opening the kept folder.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/cairnrun/cairn/internal/dev"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

// Defaults of Options.
const (
	DefaultServer = "127.0.0.1:7070"
	DefaultDir    = ".cairn"
)

// maxMessage bounds one answer, 64 MiB: the state of a run with a large plan.
const maxMessage = 64 << 20

// dialTimeout bounds how long a server may take to answer the connection.
const dialTimeout = 3 * time.Second

// ErrUnavailable says that nobody answers.
var ErrUnavailable = errors.New("nobody answers")

// unavailable says who does not answer and what to do.
type unavailable string

func (u unavailable) Error() string        { return string(u) }
func (u unavailable) Is(target error) bool { return target == ErrUnavailable }

func unavailablef(format string, args ...any) error { return unavailable(fmt.Sprintf(format, args...)) }

// Options say where to look.
type Options struct {
	// Server is a gateway's address. Empty: DefaultServer, or whoever has the kept folder.
	Server string
	// Dir is the kept folder. Empty: DefaultDir.
	Dir string
	// Token authenticates to a gateway that wants it.
	Token string
	// Note is told what a person may not expect of the answer; nil: nobody is.
	Note func(text string)
}

// Client holds one connection.
type Client struct {
	Runs  apiv1.RunServiceClient
	Query apiv1.QueryServiceClient
	Tools apiv1.ToolServiceClient
	// From says who answers: an address, or a folder.
	From string

	conn *grpc.ClientConn
	kept *dev.Dev
}

// Close ends the connection, and the services that were started to read a kept folder.
func (c *Client) Close() {
	_ = c.conn.Close()
	if c.kept != nil {
		c.kept.Close()
	}
}

// Kept says that a kept folder answers, in which nothing goes on.
func (c *Client) Kept() bool { return c.kept != nil }

// Connect reaches a server, for commands that change something.
func Connect(ctx context.Context, o Options) (*Client, error) {
	if o.Server != "" {
		return dial(ctx, o.Server, o.Token)
	}
	if h, held, err := dev.Held(o.dir()); err == nil && held && h.Gateway != "" {
		if c, err := dial(ctx, h.Gateway, o.Token); err == nil {
			return c, nil
		}
	}
	if o.Dir != "" {
		return nil, unavailablef("nobody serves folder %s; start \"cairn dev --dir %s\", or name a server with --server", o.Dir, o.Dir)
	}
	return dial(ctx, DefaultServer, o.Token)
}

// Read reaches a server or, where none runs, the kept folder, for commands that only ask.
func Read(ctx context.Context, o Options) (*Client, error) {
	if o.Server != "" {
		return dial(ctx, o.Server, o.Token)
	}
	h, held, err := dev.Held(o.dir())
	if err != nil {
		return nil, unavailable(err.Error())
	}
	if held {
		return readHeld(ctx, o, h)
	}
	// A folder that was named is meant; else a server that runs comes first.
	if o.Dir == "" {
		if c, err := dial(ctx, DefaultServer, o.Token); err == nil {
			if dev.Exists(o.dir()) && o.Note != nil {
				o.Note(fmt.Sprintf("the server at %s answers; --dir %s looks into the folder here", DefaultServer, o.dir()))
			}
			return c, nil
		}
	}
	if !dev.Exists(o.dir()) {
		return nil, unavailablef("no gateway answers at %s and there is no kept folder %s here; start one with \"cairn dev\", name a server with --server, or a folder with --dir",
			DefaultServer, o.dir())
	}
	return openKept(ctx, o.dir())
}

func readHeld(ctx context.Context, o Options, h dev.Holder) (*Client, error) {
	if h.Gateway != "" {
		if c, err := dial(ctx, h.Gateway, o.Token); err == nil {
			return c, nil
		}
	}
	return nil, unavailablef("folder %s is in use by process %d, which does not answer yet; wait for it, or stop it", o.dir(), h.PID)
}

func (o Options) dir() string {
	if o.Dir == "" {
		return DefaultDir
	}
	return o.Dir
}

// address reads what a person gives for a server: host:port, the URL that "cairn dev" prints, or a host alone.
func address(server string) (string, error) {
	rest, _ := strings.CutPrefix(server, "http://")
	if strings.HasPrefix(rest, "https://") {
		return "", status.Error(codes.InvalidArgument, "server "+server+": a gateway speaks no TLS; give its host:port, or that of a proxy without TLS on this side")
	}
	rest, _, _ = strings.Cut(rest, "/")
	if rest == "" || strings.ContainsAny(rest, "@ ") {
		return "", status.Error(codes.InvalidArgument, fmt.Sprintf("server %q: give host:port, as %s", server, DefaultServer))
	}
	if _, _, err := net.SplitHostPort(rest); err == nil {
		return rest, nil
	}
	_, port, err := net.SplitHostPort(DefaultServer)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(strings.Trim(rest, "[]"), port), nil
}

func dial(ctx context.Context, addr, token string) (*Client, error) {
	addr, err := address(addr)
	if err != nil {
		return nil, err
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}
	if token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer(token)))
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, opts...)
	if err != nil {
		return nil, fmt.Errorf("server address %q: %w", addr, err)
	}
	if err = connected(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, unavailablef("no gateway answers at %s; start one with \"cairn dev\", or name another with --server", addr)
	}
	return fromConn(conn, addr), nil
}

func fromConn(conn *grpc.ClientConn, from string) *Client {
	return &Client{
		Runs: apiv1.NewRunServiceClient(conn), Query: apiv1.NewQueryServiceClient(conn), Tools: apiv1.NewToolServiceClient(conn),
		From: from, conn: conn,
	}
}

// connected waits for the connection, and ends at the first failure instead of trying on.
func connected(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn.Connect()
	for {
		s := conn.GetState()
		switch s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return ErrUnavailable
		}
		if !conn.WaitForStateChange(ctx, s) {
			return ErrUnavailable
		}
	}
}

type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (b bearer) RequireTransportSecurity() bool { return false }

// FromEnvironment fills in what flags left open: CAIRN_SERVER, CAIRN_DIR, CAIRN_TOKEN. A folder that a flag names is meant,
// whatever server the environment knows.
func (o Options) FromEnvironment() Options {
	folder := o.Dir != ""
	for _, e := range []struct {
		field *string
		name  string
	}{{&o.Server, "CAIRN_SERVER"}, {&o.Dir, "CAIRN_DIR"}, {&o.Token, "CAIRN_TOKEN"}} {
		if *e.field == "" && (e.field != &o.Server || !folder) {
			*e.field = os.Getenv(e.name)
		}
	}
	return o
}
