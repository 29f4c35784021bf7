package runstore

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
)

// author writes groups as an executor does.
type author struct {
	tb         testing.TB
	log        eventlog.Log
	partitions int

	mu     sync.Mutex
	chains []eventlog.Chain
	runs   map[string]*authoredRun
	clock  time.Time
}

type authoredRun struct {
	revision int64
	hash     []byte
}

func newAuthor(tb testing.TB, log eventlog.Log, partitions int) *author {
	a := &author{tb: tb, log: log, partitions: partitions, runs: map[string]*authoredRun{}, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for p := range partitions {
		a.chains = append(a.chains, eventlog.Chain{Partition: p})
	}
	return a
}

func (a *author) partition(runID string) int { return bus.Partition(runID, a.partitions) }

// commit makes a run's next commit of event bodies, its status as the last of them says.
func (a *author) commit(runID string, bodies ...*runv1.Event) *runv1.Commit {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.runs[runID]
	if r == nil {
		r = &authoredRun{}
		a.runs[runID] = r
	}
	a.clock = a.clock.Add(time.Millisecond)
	c := &runv1.Commit{RunId: runID, Time: timestamppb.New(a.clock), RulesVersion: "1", Status: runv1.RunStatus_RUN_STATUS_RUNNING, Phase: runv1.RunPhase_RUN_PHASE_EXECUTING, PreviousHash: r.hash}
	for _, e := range bodies {
		e = proto.CloneOf(e)
		r.revision++
		e.Revision, e.Kind = r.revision, runv1.EventKind_EVENT_KIND_DECIDED
		e.Id, e.RunId, e.Time = eventlog.EventID(runID, r.revision), runID, c.Time
		switch e.Body.(type) {
		case *runv1.Event_RunSubmitted:
			c.Status, c.Phase = runv1.RunStatus_RUN_STATUS_CREATED, runv1.RunPhase_RUN_PHASE_PLANNING
		case *runv1.Event_RunCompleted:
			c.Status, c.Phase = runv1.RunStatus_RUN_STATUS_COMPLETED, runv1.RunPhase_RUN_PHASE_ENDED
		case *runv1.Event_RunFailed:
			c.Status, c.Phase = runv1.RunStatus_RUN_STATUS_FAILED, runv1.RunPhase_RUN_PHASE_ENDED
		}
		c.Events = append(c.Events, e)
	}
	return c
}

// write appends one group with the commits, all of one partition.
func (a *author) write(commits ...*runv1.Commit) uint64 {
	a.tb.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.partition(commits[0].GetRunId())
	chain := &a.chains[p]
	g := &runv1.Group{Partition: int32(p), Epoch: 1, Number: chain.Number + 1, PreviousHash: chain.Hash, Owner: "author"}
	for _, c := range commits {
		e, err := eventlog.EncodeCommit(c, a.runs[c.GetRunId()].revision)
		if err != nil {
			a.tb.Fatal(err)
		}
		a.runs[c.GetRunId()].hash = eventlog.Hash(e.GetCommit())
		g.Entries = append(g.Entries, e)
	}
	data, err := eventlog.EncodeGroup(g)
	if err != nil {
		a.tb.Fatal(err)
	}
	seq, err := a.log.Append(context.Background(), p, chain.Sequence, data)
	if err != nil {
		a.tb.Fatal(err)
	}
	chain.Accept(g, eventlog.Message{Sequence: seq, Data: data})
	return seq
}

// say commits bodies of one run as a group of its own.
func (a *author) say(runID string, bodies ...*runv1.Event) uint64 {
	a.tb.Helper()
	return a.write(a.commit(runID, bodies...))
}

func submitted(goal string, labels ...*runv1.Label) *runv1.Event {
	return &runv1.Event{Body: &runv1.Event_RunSubmitted{RunSubmitted: &runv1.RunSubmitted{Spec: &runv1.RunSpec{Goal: goal, Labels: labels}}}}
}

func planned(tools ...string) *runv1.Event {
	p := &planv1.Plan{Id: "p1", Version: 1, Goal: "goal of the plan"}
	var defs []*planv1.ToolDefinition
	for i, name := range tools {
		p.Steps = append(p.Steps, &planv1.Step{Id: fmt.Sprintf("s%d", i), Action: &planv1.Action{Kind: planv1.ActionKind_ACTION_KIND_TOOL, Name: name}})
		defs = append(defs, &planv1.ToolDefinition{Name: name})
	}
	return &runv1.Event{Body: &runv1.Event_PlanCreated{PlanCreated: &runv1.PlanCreated{RequestId: "plan-1", Plan: p, Tools: defs}}}
}

func observed(step, output string) *runv1.Event {
	return &runv1.Event{Body: &runv1.Event_ObservationRecorded{ObservationRecorded: &runv1.ObservationRecorded{
		ActionId: step + "-1", StepId: step, Attempt: 1, Observation: &runv1.Observation{
			Outcome: runv1.Outcome_OUTCOME_SUCCESS,
			Output:  &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: output}}},
		}}}}
}

func succeeded(step string) *runv1.Event {
	return &runv1.Event{Body: &runv1.Event_StepSucceeded{StepSucceeded: &runv1.StepSucceeded{StepId: step}}}
}

func completed(answer string) *runv1.Event {
	return &runv1.Event{Body: &runv1.Event_RunCompleted{RunCompleted: &runv1.RunCompleted{Answer: &planv1.JsonText{Text: answer}}}}
}

func runFailed(code string) *runv1.Event {
	return &runv1.Event{Body: &runv1.Event_RunFailed{RunFailed: &runv1.RunFailed{Error: &runv1.Error{Code: code}}}}
}

// smallRun writes one run of five steps, each report a group of its own.
func (a *author) smallRun(runID string) {
	a.tb.Helper()
	a.say(runID, submitted("goal of "+runID), planned("echo", "add"))
	for i := range 5 {
		a.say(runID, observed(fmt.Sprintf("s%d", i), `{"n":9007199254740993,"p":9011.00}`), succeeded(fmt.Sprintf("s%d", i)))
	}
	a.say(runID, completed(`"done"`))
}

// quiet is a configuration for tests: no logging, fast transactions.
func quiet(tb testing.TB) Config {
	return Config{
		Database: filepath.Join(tb.TempDir(), "runs.db"), Logger: slog.New(slog.DiscardHandler),
		FlushInterval: 20 * time.Millisecond, FlushLinger: time.Millisecond, MaxWait: 10 * time.Second,
	}.withDefaults()
}

// started is a projection under way.
type started struct {
	*projection
	*queries
	store *store
	// troubles are what was reported and not taken back.
	troubles func() map[string]error
	stop     func()
	closeAll context.CancelFunc
}

// start projects a log until the test ends, or stop is called.
func start(tb testing.TB, c Config, log eventlog.Log, partitions int, options ...func(*projection)) *started {
	tb.Helper()
	s, err := openStore(context.Background(), c.Database, c)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := newProjection(context.Background(), c, log, s, partitions)
	if err != nil {
		s.Close()
		tb.Fatal(err)
	}
	cond := newConditions(func(error) {})
	p.report = cond.report
	for _, o := range options {
		o(p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	closing, closeStreams := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.run(ctx) }()
	var once sync.Once
	st := &started{
		projection: p, store: s, closeAll: closeStreams,
		queries: newQueries(closing, c, p, func(id string) int { return bus.Partition(id, partitions) }),
		troubles: func() map[string]error {
			cond.mu.Lock()
			defer cond.mu.Unlock()
			out := map[string]error{}
			for k, v := range cond.parts {
				out[k] = v
			}
			return out
		},
		stop: func() {
			once.Do(func() {
				closeStreams()
				cancel()
				if err := <-done; err != nil {
					tb.Errorf("projection: %v", err)
				}
				s.Close()
			})
		},
	}
	tb.Cleanup(st.stop)
	return st
}

// sync waits until the database holds all that the log holds.
func (s *started) sync(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.caughtUp(ctx); err != nil {
		tb.Fatal(err)
	}
}

// dump is every table of a database as text, by columns that mean something.
func dump(tb testing.TB, path string) string {
	tb.Helper()
	db, err := openSQLite(path, time.Second, "query_only(1)")
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	var out strings.Builder
	for _, table := range tables(tb, db) {
		rows, err := db.Query("SELECT * FROM " + table + " ORDER BY 1, 2, 3")
		if err != nil {
			tb.Fatal(err)
		}
		columns, _ := rows.Columns()
		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			if err := rows.Scan(values...); err != nil {
				tb.Fatal(err)
			}
			fmt.Fprintf(&out, "%s:", table)
			for i, v := range values {
				if b, ok := (*v.(*any)).([]byte); ok {
					fmt.Fprintf(&out, " %s=%x", columns[i], b)
				} else {
					fmt.Fprintf(&out, " %s=%#v", columns[i], *v.(*any))
				}
			}
			out.WriteByte('\n')
		}
		if err := rows.Err(); err != nil {
			tb.Fatal(err)
		}
		rows.Close()
	}
	return out.String()
}

func tables(tb testing.TB, db *sql.DB) []string {
	tb.Helper()
	rows, err := db.Query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			tb.Fatal(err)
		}
		out = append(out, name)
	}
	return out
}
