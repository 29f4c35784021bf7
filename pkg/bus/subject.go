// Package bus is Cairn's use of NATS: streams, subjects, connections, and the Watermill publisher and subscriber over
// nats.go/jetstream.
package bus

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Subjects of the streams; DESIGN and ARCHITECTURE.md say who writes and who reads them. Tokens are subject-safe by
// construction: run ids, request ids and action ids hold only [A-Za-z0-9_=-].
const (
	LogPrefix    = "cairn.log."
	ReportPrefix = "cairn.report."
	PlanPrefix   = "cairn.work.plan."
	CallPrefix   = "cairn.work.call."
	EventPrefix  = "cairn.event."
	// DeadLetterPrefix takes messages that used up their deliveries: cairn.dead.<stream>.<run>.
	DeadLetterPrefix = "cairn.dead."
	// CancelPrefix and ProgressPrefix are core NATS, not stored.
	CancelPrefix   = "cairn.signal.cancel."
	ProgressPrefix = "cairn.progress."
)

// HeaderAnswer names the subject that the owner answers a report on, once the outcome is in the log.
const HeaderAnswer = "Cairn-Answer-To"

// LogSubject is the exact subject of a partition's log.
func LogSubject(partition int) string { return fmt.Sprintf("%s%d", LogPrefix, partition) }

// ReportSubject is where reports about a run go.
func ReportSubject(partition int, runID string) string {
	return fmt.Sprintf("%s%d.%s", ReportPrefix, partition, runID)
}

// PlanSubject is where a plan or a patch is asked for; one message a subject.
func PlanSubject(runID, requestID string) string { return PlanPrefix + runID + "." + requestID }

// CallSubject is where a call or a revocation is asked for; one message a subject.
func CallSubject(runID, actionID string) string { return CallPrefix + runID + "." + actionID }

// EventSubject is where the feed publishes an event, by its type name, as in cairn.event.PlanCreated.r123.
func EventSubject(typeName, runID string) string { return EventPrefix + typeName + "." + runID }

// Partition is the stable hash of a run id onto n partitions (FNV-1a, 64 bit, finalised so that short ids spread).
func Partition(runID string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(runID))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return int(x % uint64(n))
}

// RunOf returns the run token of a report, work, action, result, event or claim subject, and "" where there is none.
func RunOf(subject string) string {
	t := strings.Split(subject, ".")
	switch {
	case len(t) < 4:
		return ""
	case t[1] == "report", t[1] == "work", t[1] == "event":
		return t[3]
	case t[1] == "action", t[1] == "result":
		return t[2]
	}
	return ""
}
