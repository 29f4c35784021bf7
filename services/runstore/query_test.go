package runstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/eventlog"
)

func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok && i.GetDomain() == domain {
			return i.GetReason()
		}
	}
	return ""
}

func TestEventsPageByCountAndBytes(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	c := quiet(t)
	c.ChunkBytes, c.PageBytes = 500, 2000
	s := start(t, c, log, 1)
	a.say("r1", submitted("g"))
	for i := range 30 {
		a.say("r1", observed("s", fmt.Sprintf(`"%s"`, strings.Repeat("x", i*20))), succeeded("s"))
	}
	a.say("r1", observed("s", `"`+strings.Repeat("y", 5000)+`"`)) // more than a page's bytes alone
	seq := a.say("r1", completed("1"))
	for _, size := range []int32{1, 7, 0} {
		got, after, token := []int64{}, int64(0), ""
		for pages := 0; ; pages++ {
			page, err := s.ListEvents(t.Context(), &apiv1.ListEventsRequest{RunId: "r1", AfterRevision: 3, PageSize: size, PageToken: token, Position: &apiv1.LogPosition{Sequence: seq}})
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for _, e := range page.GetEvents() {
				got = append(got, e.GetRevision())
				bytes += proto.Size(e)
			}
			if n := len(page.GetEvents()); n == 0 || size > 0 && n > int(size) || n > 1 && bytes > c.PageBytes {
				t.Fatalf("page %d after %d: %d events, %d bytes", pages, after, n, bytes)
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		for i, rev := range got {
			if rev != int64(i+4) {
				t.Fatalf("size %d: revision %d at place %d", size, rev, i)
			}
		}
		if len(got) != 60 {
			t.Fatalf("size %d: %d events", size, len(got))
		}
	}
}

func TestPageSizesAtTheirLimits(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	a.say("r1", submitted("g"))
	s.sync(t)
	for size, want := range map[int32]codes.Code{0: codes.OK, 1: codes.OK, 1000: codes.OK, 1001: codes.InvalidArgument, -1: codes.InvalidArgument} {
		if _, err := s.ListRuns(t.Context(), &apiv1.ListRunsRequest{PageSize: size}); status.Code(err) != want {
			t.Errorf("runs, %d: %v", size, err)
		}
	}
	for size, want := range map[int32]codes.Code{0: codes.OK, 10_000: codes.OK, 10_001: codes.InvalidArgument, -1: codes.InvalidArgument} {
		if _, err := s.ListEvents(t.Context(), &apiv1.ListEventsRequest{RunId: "r1", PageSize: size}); status.Code(err) != want {
			t.Errorf("events, %d: %v", size, err)
		}
	}
}

func TestPageOfRunsEndsByBytes(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	c := quiet(t)
	c.PageBytes = 3000
	s := start(t, c, log, 1)
	for i := range 7 {
		a.say(fmt.Sprintf("r%d", i), submitted(strings.Repeat("读", 300+i*300)))
	}
	s.sync(t)
	seen, token := 0, ""
	for {
		page, err := s.ListRuns(t.Context(), &apiv1.ListRunsRequest{PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(page.GetRuns()); n == 0 || n > 1 && proto.Size(page) > c.PageBytes+200 {
			t.Fatalf("a page of %d runs and %d bytes", n, proto.Size(page))
		}
		seen += len(page.GetRuns())
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if seen != 7 {
		t.Fatalf("%d runs over all pages", seen)
	}
}

func TestBadRequestsSayWhatAndWhere(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	c := quiet(t)
	c.MaxWait = 20 * time.Millisecond
	s := start(t, c, log, 1)
	a.say("r1", submitted("g"))
	a.say("r2", submitted("g"))
	s.sync(t)
	ctx := t.Context()
	events, err := s.ListEvents(ctx, &apiv1.ListEventsRequest{RunId: "r1"})
	if err != nil || events.GetNextPageToken() != "" {
		t.Fatalf("%v, %v", events, err)
	}
	page, err := s.ListRuns(ctx, &apiv1.ListRunsRequest{PageSize: 1})
	if err != nil || page.GetNextPageToken() == "" {
		t.Fatalf("%v, %v", page, err)
	}
	ask := map[string]struct {
		call   func() error
		code   codes.Code
		reason string
	}{
		"unknown run":           {func() error { _, err := s.GetRun(ctx, &apiv1.GetRunRequest{RunId: "r9"}); return err }, codes.NotFound, "unknown_run"},
		"unknown run's events":  {func() error { _, err := s.ListEvents(ctx, &apiv1.ListEventsRequest{RunId: "r9"}); return err }, codes.NotFound, "unknown_run"},
		"unknown run's replay":  {func() error { _, err := s.ReplayRun(ctx, &apiv1.ReplayRunRequest{RunId: "r9"}); return err }, codes.NotFound, "unknown_run"},
		"unknown run's reasons": {func() error { _, err := s.ExplainRun(ctx, &apiv1.ExplainRunRequest{RunId: "r9"}); return err }, codes.NotFound, "unknown_run"},
		"no run id":             {func() error { _, err := s.GetRun(ctx, &apiv1.GetRunRequest{}); return err }, codes.InvalidArgument, "invalid_argument"},
		"revision ahead":        {func() error { _, err := s.GetRun(ctx, &apiv1.GetRunRequest{RunId: "r1", Revision: 2}); return err }, codes.OutOfRange, "revision_ahead"},
		"revision below":        {func() error { _, err := s.GetRun(ctx, &apiv1.GetRunRequest{RunId: "r1", Revision: -1}); return err }, codes.InvalidArgument, "invalid_argument"},
		"until ahead": {func() error {
			_, err := s.ReplayRun(ctx, &apiv1.ReplayRunRequest{RunId: "r1", UntilRevision: 2})
			return err
		}, codes.OutOfRange, "revision_ahead"},
		"token of another list": {func() error {
			_, err := s.ListRuns(ctx, &apiv1.ListRunsRequest{Filter: "status=failed", PageToken: page.GetNextPageToken()})
			return err
		}, codes.InvalidArgument, "invalid_argument"},
		"token of our own making": {func() error { _, err := s.ListRuns(ctx, &apiv1.ListRunsRequest{PageToken: "!"}); return err }, codes.InvalidArgument, "invalid_argument"},
		"token of another run": {func() error {
			_, err := s.ListEvents(ctx, &apiv1.ListEventsRequest{RunId: "r1", PageToken: encodeToken(eventsToken{RunID: "r2"})})
			return err
		}, codes.InvalidArgument, "invalid_argument"},
		"position ahead": {func() error {
			_, err := s.GetRun(ctx, &apiv1.GetRunRequest{RunId: "r1", Position: &apiv1.LogPosition{Sequence: 99}})
			return err
		}, codes.Unavailable, "not_projected"},
		"list ahead": {func() error {
			_, err := s.ListRuns(ctx, &apiv1.ListRunsRequest{Position: &apiv1.LogPosition{Sequence: 99}})
			return err
		}, codes.Unavailable, "not_projected"},
		"no such partition": {func() error {
			_, err := s.ListRuns(ctx, &apiv1.ListRunsRequest{Position: &apiv1.LogPosition{Partition: 1, Sequence: 1}})
			return err
		}, codes.InvalidArgument, "invalid_argument"},
		"unknown step": {func() error {
			_, err := s.ExplainRun(ctx, &apiv1.ExplainRunRequest{RunId: "r1", StepId: "x"})
			return err
		}, codes.NotFound, "unknown_step"},
		"unknown event": {func() error {
			_, err := s.ExplainRun(ctx, &apiv1.ExplainRunRequest{RunId: "r1", Revision: 7})
			return err
		}, codes.NotFound, "unknown_event"},
	}
	for name, tc := range ask {
		err := tc.call()
		if status.Code(err) != tc.code || reasonOf(err) != tc.reason {
			t.Errorf("%s: %v with reason %q, want %s with %s", name, err, reasonOf(err), tc.code, tc.reason)
		}
		if tc.code == codes.Unavailable {
			retry := false
			for _, d := range status.Convert(err).Details() {
				_, is := d.(*errdetails.RetryInfo)
				retry = retry || is
			}
			if !retry {
				t.Errorf("%s: no RetryInfo", name)
			}
		}
	}
}

// A question that carries the position of an answer finds what was answered, though no transaction has run.
func TestAPositionIsWaitedFor(t *testing.T) {
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	c := quiet(t)
	c.FlushInterval, c.FlushLinger = time.Hour, time.Hour
	s := start(t, c, log, 1)
	var pos apiv1.LogPosition
	for i := range 20 {
		id := fmt.Sprintf("r%d", i)
		pos.Sequence = a.say(id, submitted("g"))
		if _, err := s.ListEvents(t.Context(), &apiv1.ListEventsRequest{RunId: id, Position: &pos}); err != nil {
			t.Fatalf("events of the run just written: %v", err)
		}
	}
	page, err := s.ListRuns(t.Context(), &apiv1.ListRunsRequest{Position: &pos})
	if err != nil || len(page.GetRuns()) != 20 {
		t.Fatalf("%d runs in the list, %v", len(page.GetRuns()), err)
	}
	last := a.say("r20", submitted("g"))
	if err := s.tail.waitSeen(t.Context(), 0, last); err != nil {
		t.Fatal(err)
	}
	page, err = s.ListRuns(t.Context(), &apiv1.ListRunsRequest{})
	if err != nil || len(page.GetRuns()) != 21 {
		t.Fatalf("a list without a position shows %d runs of those that get shows, %v", len(page.GetRuns()), err)
	}
	pos.Sequence = last
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = s.ListEvents(ctx, &apiv1.ListEventsRequest{RunId: "r1", Position: &apiv1.LogPosition{Sequence: pos.GetSequence() + 1}})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("the caller's own deadline: %v", err)
	}
}

// Case 15 and case 68: numbers keep their text, texts their characters, through log, database and questions.
func TestCase15_Case68_ValuesComeBackExactly(t *testing.T) {
	const value = `{"id":9007199254740993,"max":9223372036854775807,"p":9011.00,"e":1e2,"n":null,"t":"读✅\u2028` + "\u2028\u0085" + `\u0000"}`
	goal := "下单 1 台 iPhone\u2028\u0085 e\u0301 \u00e9"
	log := eventlog.NewMemory()
	a := newAuthor(t, log, 1)
	s := start(t, quiet(t), log, 1)
	a.say("r1", submitted(goal))
	a.say("r1", observed("s", value))
	for _, from := range []string{"tail", "database"} {
		if from == "database" {
			s.sync(t)
		} else if err := s.tail.waitSeen(t.Context(), 0, 2); err != nil {
			t.Fatal(err)
		}
		page, err := s.ListEvents(t.Context(), &apiv1.ListEventsRequest{RunId: "r1"})
		if err != nil {
			t.Fatal(err)
		}
		if got := page.GetEvents()[0].GetRunSubmitted().GetSpec().GetGoal(); got != goal {
			t.Errorf("%s: goal %q", from, got)
		}
		if got := page.GetEvents()[1].GetObservationRecorded().GetObservation().GetOutput().GetInline().GetText(); got != value {
			t.Errorf("%s: value %s", from, got)
		}
	}
	runs, err := s.ListRuns(t.Context(), &apiv1.ListRunsRequest{})
	if err != nil || runs.GetRuns()[0].GetGoal() != goal {
		t.Fatalf("%v, %v", runs, err)
	}
}

func TestStepOfNamesTheStepOfEveryBodyThatHasOne(t *testing.T) {
	if got := stepOf(observed("a", "1")); got != "a" {
		t.Errorf("got %q", got)
	}
	for _, e := range []*runv1.Event{completed("1"), submitted("g"), {}} {
		if got := stepOf(e); got != "" {
			t.Errorf("got %q of %v", got, e)
		}
	}
}
