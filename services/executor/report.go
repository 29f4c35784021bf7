package executor

import (
	"time"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// report is one delivered report.
type report struct {
	subject string
	data    []byte
	// answerTo is where its sender waits, empty where it does not.
	answerTo string
	msg      *runv1.Report
	// settle tells the stream what became of the delivery.
	settle delivery
}

// delivery is how a report is given back to its stream.
type delivery interface {
	// Ack: it is in the log, or needs not to be.
	Ack()
	// Nak: deliver it again after the delay.
	Nak(delay time.Duration)
}

// source gives a partition's reports in order.
type source interface {
	// Take returns what has come, nil for nothing; it does not wait.
	Take() []*report
	// Ready is signalled when there is something to take, or Err.
	Ready() <-chan struct{}
	// Waiting is how many reports waited in the stream when the source was opened.
	Waiting() uint64
	// Err is why no more will come.
	Err() error
	Close()
}

// outside is what an owner does to the world, once what caused it is in the log. None of its methods waits.
type outside interface {
	// Publish stores work; that somebody has it already is success.
	Publish(w *work)
	// Cancelled tells tools in flight, removes what waits of the run, and then publishes what the run still owes.
	Cancelled(runID string, then []*work)
	// Answer tells a report's sender.
	Answer(to string, a *runv1.Answer)
	// Dead keeps a report that cannot be judged, and acknowledges it when it is kept.
	Dead(r *report, reason string)
	// Missing calls back, from another goroutine, with the items that nobody has; nil with an error.
	Missing(partition int, items []*work, done func(missing []*work, err error))
}

// work is a piece of work with its place.
type work struct {
	subject string
	msg     *runv1.Work
	// revision of the run when it was found to be owed.
	revision int64
}
