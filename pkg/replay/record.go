// Package replay works on a run's stored commits without a server: reading and writing exports, taking a run out of a
// log, folding it to a revision, and verifying that this binary's core decides what the log says.
package replay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"

	"github.com/cairnrun/cairn/pkg/eventlog"
)

// Record is one commit of a run as the log holds it.
type Record struct {
	// Entry has the stored bytes, which hashes are over.
	Entry *runv1.Entry
	// Commit is what Entry holds, its events complete.
	Commit *runv1.Commit
	// Shown is the commit that an export shows to people beside the stored bytes; nil where there is none.
	Shown *runv1.Commit
	// Partition and Sequence say where the log has it.
	Partition int
	Sequence  uint64
}

// NewRecord unpacks a stored entry. Errors wrap eventlog.ErrCorrupt.
func NewRecord(e *runv1.Entry, partition int, sequence uint64) (Record, error) {
	c, err := eventlog.DecodeCommit(e)
	if err != nil {
		return Record{}, err
	}
	return Record{Entry: e, Commit: c, Partition: partition, Sequence: sequence}, nil
}

// Export is the record as ExportRun sends it and Write writes it.
func (r Record) Export() *apiv1.ExportRunResponse {
	return &apiv1.ExportRunResponse{
		Commit: r.Commit, Stored: r.Entry.GetCommit(), Encoding: r.Entry.GetEncoding(),
		Position: &apiv1.LogPosition{Partition: int32(r.Partition), Sequence: r.Sequence},
	}
}

// FromExport reads one message of ExportRun, or one line of an export. The stored bytes count, not what is shown.
func FromExport(m *apiv1.ExportRunResponse) (Record, error) {
	if len(m.GetStored()) == 0 {
		return Record{}, errors.New("it has no stored bytes (field stored)")
	}
	e := &runv1.Entry{RunId: m.GetCommit().GetRunId(), Encoding: m.GetEncoding(), Commit: m.GetStored()}
	if e.Encoding == runv1.Encoding_ENCODING_UNSPECIFIED {
		e.Encoding = runv1.Encoding_ENCODING_RAW
	}
	r, err := NewRecord(e, int(m.GetPosition().GetPartition()), m.GetPosition().GetSequence())
	if err != nil {
		return Record{}, err
	}
	r.Shown = m.GetCommit()
	if ev := r.Commit.GetEvents(); len(ev) > 0 {
		e.FirstRevision, e.LastRevision = ev[0].GetRevision(), ev[len(ev)-1].GetRevision()
	} else {
		e.LastRevision = r.Commit.GetSnapshot().GetRevision()
		e.FirstRevision = e.LastRevision + 1
	}
	return r, nil
}

// Write adds one line to an export: JSON with values exact and stored bytes in base64.
func Write(w io.Writer, m *apiv1.ExportRunResponse) error {
	line, err := exactjson.Marshal(m)
	if err != nil {
		return fmt.Errorf("export of run %s: %w", m.GetCommit().GetRunId(), err)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// MaxLine bounds one line of an export, in bytes.
const MaxLine = 512 << 20

// Read reads an export: one run, a line a commit. Errors name the line.
func Read(r io.Reader) ([]Record, error) {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), MaxLine)
	// Only \n ends a line: texts may hold U+2028 and the like.
	in.Split(splitLines)
	var out []Record
	for n := 1; in.Scan(); n++ {
		line := bytes.TrimSpace(in.Bytes())
		if len(line) == 0 {
			continue
		}
		m := &apiv1.ExportRunResponse{}
		if err := exactjson.Unmarshal(line, m); err != nil {
			return nil, fmt.Errorf("line %d is not a line of cairn export: %w", n, err)
		}
		rec, err := FromExport(m)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(out) > 0 && rec.Commit.GetRunId() != out[0].Commit.GetRunId() {
			return nil, fmt.Errorf("line %d belongs to run %s, the lines before to run %s: an export holds one run", n, rec.Commit.GetRunId(), out[0].Commit.GetRunId())
		}
		out = append(out, rec)
	}
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d is longer than %d bytes", len(out)+1, MaxLine)
	case err != nil:
		return nil, err
	case len(out) == 0:
		return nil, errors.New("the export is empty; make one with: cairn export RUN > run.jsonl")
	}
	return out, nil
}

func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// ErrNoRun says that the log has no commit of the run.
var ErrNoRun = errors.New("no such run")

// FromLog takes a run's commits out of its partition by reading it from the start. Errors wrap ErrNoRun where there
// are none, and are an *eventlog.ChainError where the log does not hold together.
func FromLog(ctx context.Context, log eventlog.Log, partition int, runID string) ([]Record, error) {
	chain := &eventlog.Chain{Partition: partition}
	var out []Record
	err := log.Read(ctx, partition, 0, func(m eventlog.Message) error {
		g, err := chain.Next(m)
		if errors.Is(err, eventlog.ErrFork) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range g.GetEntries() {
			if e.GetRunId() != runID {
				continue
			}
			r, err := NewRecord(e, partition, m.Sequence)
			if err != nil {
				return err
			}
			out = append(out, r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("run %s: %w in partition %d", runID, ErrNoRun, partition)
	}
	return out, nil
}
