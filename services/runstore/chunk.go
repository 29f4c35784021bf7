package runstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// A chunk is one row of commits: log entries one after the other, each as
//
//	uvarint  sequence of the log message that holds it
//	uvarint  length of the entry
//	bytes    the entry, a cairn.run.v1.Entry with the commit as it is stored in the log
//
// Entries keep the commit's bytes, since hashes are over them.

// storedEntry is one commit of a run as the log has it.
type storedEntry struct {
	Sequence uint64
	Entry    *runv1.Entry
}

var errChunk = errors.New("damaged row of commits; build the database again from the log with: cairn runstore --rebuild")

// appendEntry adds one entry to a chunk.
func appendEntry(chunk []byte, sequence uint64, e *runv1.Entry) []byte {
	chunk = binary.AppendUvarint(chunk, sequence)
	chunk = binary.AppendUvarint(chunk, uint64(proto.Size(e)))
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(chunk, e)
	if err != nil {
		// An entry that was read a moment ago can be written: its strings are valid UTF-8.
		panic(fmt.Sprintf("runstore: entry of run %s: %v", e.GetRunId(), err))
	}
	return out
}

// readEntry returns the entry at the front of a chunk and the rest.
func readEntry(chunk []byte) (storedEntry, []byte, error) {
	sequence, n := binary.Uvarint(chunk)
	if n <= 0 {
		return storedEntry{}, nil, errChunk
	}
	chunk = chunk[n:]
	length, n := binary.Uvarint(chunk)
	if n <= 0 || length > uint64(len(chunk)-n) {
		return storedEntry{}, nil, errChunk
	}
	chunk = chunk[n:]
	e := &runv1.Entry{}
	if err := proto.Unmarshal(chunk[:length], e); err != nil {
		return storedEntry{}, nil, fmt.Errorf("%w: %w", errChunk, err)
	}
	return storedEntry{Sequence: sequence, Entry: e}, chunk[length:], nil
}
