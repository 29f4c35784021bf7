package executor

import (
	"container/list"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// mark is a run as of a commit.
type mark struct {
	state run.State
	// hash over the stored bytes of the commit.
	hash []byte
	// time of the commit.
	time time.Time
	// sequence of the log message that holds it.
	sequence uint64
}

// openRun is a run in memory. Only the owner's loop touches it.
type openRun struct {
	id string
	// head is ahead of the log; acked is in it. State is newer than head.hash while a commit is being built.
	head  mark
	acked mark
	// group is the number of the newest group that holds or will hold something of this run; 0: none since it was loaded.
	group int64
	// building takes more events until its group is sealed.
	building *commit
	// more: the core has not finished deciding; waiting are the reports that wait for it.
	more    bool
	waiting []*report
	// held says why this binary does not go on with the run.
	held       string
	snapshotAt int64
	// lead of the last commit over the owner's clock when it was made or loaded.
	lead  time.Duration
	due   time.Time
	timer int
	// touched is when something last happened, by the owner's clock.
	touched time.Time
	// lastCommit is set while folding.
	lastCommit *runv1.Commit
	// retries and replans are counted for the metrics.
	retries, replans int64
	// ended is its place in a list of runs that are over and still loaded.
	ended *list.Element
	where *endedList
}

func newOpenRun(id string) *openRun {
	r := &openRun{id: id, timer: -1}
	r.head.state = run.New(id)
	r.acked.state = r.head.state
	return r
}

// endedRun answers repeats of a submission when the run is over.
type endedRun struct {
	id       string
	digest   string
	revision int64
	status   runv1.RunStatus
	at       time.Time
	sequence uint64
}

// endedRuns remembers runs that are over, for a time and up to a number.
type endedRuns struct {
	byID  map[string]*endedRun
	order []*endedRun // by time of the end; gone ones are skipped
	max   int
}

func newEndedRuns(limit int) *endedRuns {
	return &endedRuns{byID: map[string]*endedRun{}, max: limit}
}

func (e *endedRuns) add(r *endedRun) {
	if old := e.byID[r.id]; old != nil {
		old.revision, old.status, old.sequence = r.revision, r.status, r.sequence
		return
	}
	e.byID[r.id] = r
	e.order = append(e.order, r)
	for len(e.byID) > e.max {
		e.dropOldest()
	}
}

func (e *endedRuns) dropOldest() {
	delete(e.byID, e.order[0].id)
	e.order[0] = nil
	e.order = e.order[1:]
}

// expire forgets what ended before t.
func (e *endedRuns) expire(t time.Time) {
	for len(e.order) > 0 && e.order[0].at.Before(t) {
		e.dropOldest()
	}
}

func (r *endedRun) proto() *runv1.EndedRun {
	return &runv1.EndedRun{RunId: r.id, BodyDigest: r.digest, Revision: r.revision, Status: r.status, EndedAt: timestamppb.New(r.at)}
}

// endedList holds loaded runs that are over, oldest end first.
type endedList struct {
	runs *list.List
	max  int
	keep time.Duration
}

func newEndedList(limit int, keep time.Duration) *endedList {
	return &endedList{runs: list.New(), max: limit, keep: keep}
}

// add returns the runs that must go for it.
func (l *endedList) add(r *openRun) (out []*openRun) {
	l.remove(r)
	r.ended, r.where = l.runs.PushBack(r), l
	for l.runs.Len() > l.max {
		first := l.runs.Front().Value.(*openRun)
		l.remove(first)
		out = append(out, first)
	}
	return out
}

func (l *endedList) remove(r *openRun) {
	if r.ended != nil {
		r.where.runs.Remove(r.ended)
		r.ended, r.where = nil, nil
	}
}

// expire returns the runs that were kept long enough.
func (l *endedList) expire(now time.Time) (out []*openRun) {
	for f := l.runs.Front(); f != nil; f = l.runs.Front() {
		r := f.Value.(*openRun)
		if r.acked.time.Add(l.keep).After(now) {
			return out
		}
		l.remove(r)
		out = append(out, r)
	}
	return out
}
