package gateway

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// queryService passes questions on to the run store.
type queryService struct {
	apiv1.UnimplementedQueryServiceServer
	g *gateway
}

// toStore is the context of a call to the run store: it names the tenant, and nothing else of what the client sent.
func (g *gateway) toStore(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(tenantHeader, tenantOf(ctx)))
}

// storeProblem adds the reason and the advice to repeat to what the run store, or the way to it, answered.
func (g *gateway) storeProblem(err error) error {
	if err == nil || status.Code(err) != codes.Unavailable || reasonOf(err) != "" {
		return err
	}
	if g.storeAddress == "" {
		return unavailable(reasonStoreAway, "the gateway was started without the address of a run store: it cannot answer questions about runs")
	}
	return unavailable(reasonStoreAway, "the run store at %s does not answer: %s", g.storeAddress, status.Convert(err).Message())
}

// pass forwards a unary question, after its run id was checked; a question without a run gives nil. tenants are whose
// the answer is: to anybody else there is no such run.
func pass[Req, Resp any](ctx context.Context, g *gateway, runID *string, r *Req,
	call func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), tenants func(*Resp) []string,
) (*Resp, error) {
	if runID != nil {
		d := &door{limits: g.limits}
		if d.id("run_id", *runID); len(d.wrong) > 0 {
			return nil, d.err()
		}
	}
	ctx, cancel := context.WithCancel(g.toStore(ctx))
	defer cancel()
	// A run store that is just starting gets its time; once the call is under way the client's deadline counts.
	if err := g.storeUp(ctx); err != nil {
		return nil, err
	}
	resp, err := call(ctx, r)
	if err != nil {
		return nil, g.storeProblem(err)
	}
	for _, t := range tenants(resp) {
		if err := own(ctx, t); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// own refuses what belongs to another tenant than the caller's.
func own(ctx context.Context, tenant string) error {
	if tenant == tenantOf(ctx) || tenant == "" && tenantOf(ctx) == defaultTenant {
		return nil
	}
	return newProblem(codes.NotFound, reasonUnknownRun, "there is no such run of tenant %s", tenantOf(ctx))
}

func (q *queryService) GetRun(ctx context.Context, r *apiv1.GetRunRequest) (*apiv1.GetRunResponse, error) {
	return pass(ctx, q.g, &r.RunId, r, q.g.store.GetRun, func(a *apiv1.GetRunResponse) []string {
		return []string{a.GetRun().GetTenant()}
	})
}

func (q *queryService) ListRuns(ctx context.Context, r *apiv1.ListRunsRequest) (*apiv1.ListRunsResponse, error) {
	// Behind the client's terms, so that the places in error messages stay true. A term cannot swallow it: it has no quote.
	term := "tenant=" + tenantOf(ctx)
	if strings.TrimSpace(r.GetFilter()) != "" {
		term = r.GetFilter() + " AND " + term
	}
	r = proto.CloneOf(r)
	r.Filter = term
	return pass(ctx, q.g, nil, r, q.g.store.ListRuns, func(a *apiv1.ListRunsResponse) (all []string) {
		for _, s := range a.GetRuns() {
			all = append(all, s.GetTenant())
		}
		return all
	})
}

func (q *queryService) ListEvents(ctx context.Context, r *apiv1.ListEventsRequest) (*apiv1.ListEventsResponse, error) {
	return pass(ctx, q.g, &r.RunId, r, q.g.store.ListEvents, func(a *apiv1.ListEventsResponse) (all []string) {
		for _, e := range a.GetEvents() {
			all = append(all, e.GetTenant())
		}
		return all
	})
}

func (q *queryService) ExplainRun(ctx context.Context, r *apiv1.ExplainRunRequest) (*apiv1.ExplainRunResponse, error) {
	return pass(ctx, q.g, &r.RunId, r, q.g.store.ExplainRun, func(a *apiv1.ExplainRunResponse) (all []string) {
		for _, reason := range a.GetChain() {
			all = append(all, reason.GetEvent().GetTenant())
		}
		return all
	})
}

func (q *queryService) ReplayRun(ctx context.Context, r *apiv1.ReplayRunRequest) (*apiv1.ReplayRunResponse, error) {
	return pass(ctx, q.g, &r.RunId, r, q.g.store.ReplayRun, func(a *apiv1.ReplayRunResponse) []string {
		return []string{a.GetState().GetTenant()}
	})
}

func (q *queryService) WatchRun(r *apiv1.WatchRunRequest, s grpc.ServerStreamingServer[apiv1.WatchRunResponse]) error {
	d := &door{limits: q.g.limits}
	if d.watch(r); len(d.wrong) > 0 {
		return d.err()
	}
	done, err := q.g.watching()
	if err != nil {
		return err
	}
	defer done()
	return q.g.follow(s.Context(), r, func(e *runv1.Event) error { return s.Send(&apiv1.WatchRunResponse{Event: e}) })
}

func (q *queryService) ExportRun(r *apiv1.ExportRunRequest, s grpc.ServerStreamingServer[apiv1.ExportRunResponse]) error {
	return q.g.export(s.Context(), r, s.Send)
}

// export calls send with each stored commit of a run.
func (g *gateway) export(ctx context.Context, r *apiv1.ExportRunRequest, send func(*apiv1.ExportRunResponse) error) error {
	d := &door{limits: g.limits}
	if d.id("run_id", r.GetRunId()); len(d.wrong) > 0 {
		return d.err()
	}
	ctx, cancel := context.WithCancel(g.toStore(ctx))
	defer cancel()
	if err := g.storeUp(ctx); err != nil {
		return err
	}
	stream, err := g.store.ExportRun(ctx, r)
	if err != nil {
		return g.storeProblem(err)
	}
	for {
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return g.storeProblem(err)
		}
		if err := own(ctx, resp.GetCommit().GetTenant()); err != nil {
			return err
		}
		if err := send(resp); err != nil {
			return err
		}
	}
}
