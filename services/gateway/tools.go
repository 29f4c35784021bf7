package gateway

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/tool"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

const (
	defaultToolPage = 100
	maxToolPage     = 1000
	// maxPageBytes ends a page early, below what gRPC clients take by default.
	maxPageBytes = 3 << 20
)

// toolService shows and keeps the tool registry.
type toolService struct {
	apiv1.UnimplementedToolServiceServer
	g *gateway
}

func (s *toolService) ListTools(_ context.Context, r *apiv1.ListToolsRequest) (*apiv1.ListToolsResponse, error) {
	d := &door{limits: s.g.limits}
	after, err := base64.RawURLEncoding.DecodeString(r.GetPageToken())
	if err != nil {
		d.add("page_token", reasonInvalidArgument, "not a token that a page gave")
	}
	size := int(r.GetPageSize())
	if size < 0 || size > maxToolPage {
		d.add("page_size", reasonInvalidArgument, "%d is outside 0 to %d", size, maxToolPage)
	}
	if len(d.wrong) > 0 {
		return nil, d.err()
	}
	if size == 0 {
		size = defaultToolPage
	}
	all, err := s.g.registry.all()
	if err != nil {
		return nil, err
	}
	page, bytes := &apiv1.ListToolsResponse{}, 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name <= string(after) {
			continue
		}
		bytes += proto.Size(all[name])
		if n := len(page.GetTools()); n == size || n > 0 && bytes > maxPageBytes {
			page.NextPageToken = base64.RawURLEncoding.EncodeToString([]byte(page.GetTools()[n-1].GetName()))
			break
		}
		page.Tools = append(page.Tools, all[name])
	}
	return page, nil
}

func (s *toolService) GetTool(_ context.Context, r *apiv1.GetToolRequest) (*apiv1.GetToolResponse, error) {
	d := &door{limits: s.g.limits}
	if d.tool("name", r.GetName()); len(d.wrong) > 0 {
		return nil, d.err()
	}
	all, err := s.g.registry.all()
	if err != nil {
		return nil, err
	}
	t := all[r.GetName()]
	if t == nil {
		return nil, newProblem(codes.NotFound, reasonUnknownTool, "tool %s is not registered; GET /v1/tools lists those that are", r.GetName())
	}
	return &apiv1.GetToolResponse{Tool: t}, nil
}

func (s *toolService) RegisterTool(ctx context.Context, r *apiv1.RegisterToolRequest) (*apiv1.RegisterToolResponse, error) {
	if err := (&door{limits: s.g.limits}).definition(r.GetTool()); err != nil {
		return nil, err
	}
	t := proto.CloneOf(r.GetTool())
	if err := seal(t); err != nil {
		return nil, invalid([]violation{{"tool", reasonInvalidArgument, err.Error()}})
	}
	all, err := s.g.registry.all()
	if err != nil {
		return nil, err
	}
	old := all[t.GetName()]
	if proto.Equal(old, t) {
		return &apiv1.RegisterToolResponse{Tool: t}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.g.times.Bus)
	defer cancel()
	if err := s.g.registry.write(ctx, t); err != nil {
		return nil, err
	}
	return &apiv1.RegisterToolResponse{Tool: t, Created: old == nil}, nil
}

// seal fills in the digest, whatever the client sent as such.
func seal(t *planv1.ToolDefinition) error {
	t.Digest = ""
	text, err := exactjson.Marshal(t)
	if err != nil {
		return err
	}
	t.Digest, err = tool.DefinitionDigest(text)
	return err
}
