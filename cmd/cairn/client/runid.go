package client

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

// fullID is the length of a run id: "r" and 20 characters.
const fullID = 21

// LastRun names the newest run.
const LastRun = "last"

// RunID completes what a person typed: a whole id, the beginning of one that only one of the newest runs has, or "last".
func (c *Client) RunID(ctx context.Context, typed string) (string, error) {
	if typed == "" {
		return "", status.Error(codes.InvalidArgument, "the run id is empty; \"cairn list\" shows the runs")
	}
	if len(typed) >= fullID {
		return typed, nil
	}
	// The newest runs are what people type shortened ids of.
	const searched = 1000
	size := int32(searched)
	if typed == LastRun {
		size = 1
	}
	resp, err := c.Query.ListRuns(ctx, &apiv1.ListRunsRequest{PageSize: size})
	if err != nil {
		return "", err
	}
	var found []string
	for _, r := range resp.GetRuns() {
		switch {
		case typed == LastRun, r.GetRunId() == typed:
			return r.GetRunId(), nil
		case strings.HasPrefix(r.GetRunId(), typed):
			found = append(found, r.GetRunId())
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", status.Error(codes.InvalidArgument, fmt.Sprintf("%q begins %d run ids, among them %s and %s; type more of it", typed, len(found), found[0], found[1]))
	case typed == LastRun:
		return "", status.Error(codes.NotFound, fmt.Sprintf("%s has no runs yet", c.From))
	}
	// Older runs are found by their whole id, which may be shorter than those that a gateway makes up.
	return typed, nil
}
