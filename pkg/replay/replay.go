package replay

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"

	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
)

// Options of Replay.
type Options struct {
	// Verify feeds the recorded events to this binary's core and compares what it decides, the state hashes and the
	// chain of stored hashes.
	Verify bool
	// Until is the last revision to take in; 0: all.
	Until int64
}

// What a difference is about, beside what the core's own verification names.
const (
	// DiffPreviousHash: a commit does not follow the one before it.
	DiffPreviousHash = "previous_hash"
	// DiffOrder: revisions are not dense.
	DiffOrder = "order"
	// DiffShown: an export shows another commit than its stored bytes hold.
	DiffShown = "shown_commit"
)

var (
	// ErrBeyond: Options.Until is beyond the newest revision.
	ErrBeyond = errors.New("revision is beyond the run's newest")
	// ErrHeadMissing: the log begins with a snapshot, so there is nothing to feed the core with.
	ErrHeadMissing = errors.New("the head of the run's log is not there any more: verifying needs the whole log")
)

// Replay folds a run's commits and, on request, verifies them. A difference is part of the answer, not an error.
func Replay(records []Record, o Options) (*apiv1.ReplayRunResponse, error) {
	records, err := cut(records, o.Until)
	if err != nil {
		return nil, err
	}
	out := &apiv1.ReplayRunResponse{Commits: int64(len(records)), RulesVersion: run.RulesVersion}
	commits := make([]*runv1.Commit, len(records))
	for i, r := range records {
		commits[i] = r.Commit
		if v := r.Commit.GetRulesVersion(); v != run.RulesVersion && !slices.Contains(out.OtherRulesVersions, v) {
			out.OtherRulesVersions = append(out.OtherRulesVersions, v)
		}
		for _, e := range r.Commit.GetEvents() {
			if o.Until == 0 || e.GetRevision() <= o.Until {
				out.Events++
			}
		}
	}
	if o.Verify {
		if out.Difference, err = verify(records, commits); err != nil {
			return nil, err
		}
		if d := out.Difference; d != nil && (d.GetWhat() == DiffOrder || d.GetWhat() == DiffPreviousHash) {
			// Commits that do not follow each other cannot be folded.
			return out, nil
		}
	}
	s, err := run.Replay(commits, o.Until)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", commits[0].GetRunId(), err)
	}
	hash := s.Hash()
	out.State, out.StateHash = s.Snapshot(), hash[:]
	return out, nil
}

// cut leaves out the commits that begin after a revision.
func cut(records []Record, until int64) ([]Record, error) {
	if len(records) == 0 {
		return nil, ErrNoRun
	}
	if until == 0 {
		return records, nil
	}
	last := records[len(records)-1].Entry.GetLastRevision()
	if until > last {
		return nil, fmt.Errorf("%w: %d was asked for, it is %d", ErrBeyond, until, last)
	}
	n := len(records)
	for n > 1 && records[n-1].Entry.GetFirstRevision() > until {
		n--
	}
	return records[:n], nil
}

func verify(records []Record, commits []*runv1.Commit) (*apiv1.ReplayDifference, error) {
	if first := records[0].Entry.GetFirstRevision(); first != 1 {
		return nil, fmt.Errorf("run %s begins at revision %d: %w", commits[0].GetRunId(), first, ErrHeadMissing)
	}
	var previous []byte
	revision := int64(0)
	for _, r := range records {
		if d := follows(r, revision, previous); d != nil {
			return d, nil
		}
		revision, previous = r.Entry.GetLastRevision(), eventlog.Hash(r.Entry.GetCommit())
	}
	d := run.Verify(commits)
	if d == nil {
		return nil, nil
	}
	return &apiv1.ReplayDifference{Revision: d.Revision, What: d.What, Logged: d.Recorded, Replayed: d.Here}, nil
}

// follows checks one commit against the one before it, by revision and by hash over the stored bytes.
func follows(r Record, revision int64, previous []byte) *apiv1.ReplayDifference {
	if !bytes.Equal(r.Commit.GetPreviousHash(), previous) {
		return &apiv1.ReplayDifference{
			Revision: r.Entry.GetLastRevision(), What: DiffPreviousHash,
			Logged: hex.EncodeToString(r.Commit.GetPreviousHash()), Replayed: hex.EncodeToString(previous),
		}
	}
	for _, e := range r.Commit.GetEvents() {
		revision++
		if e.GetRevision() != revision {
			return &apiv1.ReplayDifference{
				Revision: revision, What: DiffOrder,
				Logged: fmt.Sprintf("revision %d", e.GetRevision()), Replayed: fmt.Sprintf("revision %d", revision),
			}
		}
	}
	if r.Shown != nil && !sameShown(r.Shown, r.Commit) {
		return &apiv1.ReplayDifference{
			Revision: r.Entry.GetLastRevision(), What: DiffShown,
			Logged: "the stored bytes hold another commit", Replayed: "than the one that the export shows",
		}
	}
	return nil
}

// sameShown compares as shown: what people see is text.
func sameShown(a, b *runv1.Commit) bool {
	x, errX := exactjson.Marshal(a)
	y, errY := exactjson.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
