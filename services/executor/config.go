package executor

import (
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nuid"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
)

// Config of the service. The zero value of every field but Bus works.
type Config struct {
	Bus    bus.Config
	Logger *slog.Logger
	// Health learns of the component "executor".
	Health *telemetry.Health
	// Name of this member, unique in the cluster and of [A-Za-z0-9_-]; made up where empty.
	Name string
	// Clock is the owner's clock; tests set their own. Default: the system's, steady against steps.
	Clock Clock

	// Lease is how long a member or an owner counts after its last renewal. Whole seconds, at least 1 s. Default 3 s.
	Lease time.Duration
	// SweepEvery is how often owed work is looked for that nobody has. Default 30 s.
	SweepEvery time.Duration
	// CheckEvery is how often the streams are checked to be there. Default 10 s.
	CheckEvery time.Duration

	// GroupMaxBytes ends a group. Default 2 MB.
	GroupMaxBytes int
	// GroupMaxReports ends a group. Default 4096.
	GroupMaxReports int
	// GroupLinger is how long an owner with much to do lets a group fill before it appends it; with little to do it does not
	// wait. Default 5 ms; negative: never.
	GroupLinger time.Duration
	// CommitMaxEvents ends a commit of several reports. Default 256.
	CommitMaxEvents int
	// SnapshotEvery is the number of events of a run between two snapshots of it. Default 1000.
	SnapshotEvery int64
	// CheckpointCommits and CheckpointEvery: a checkpoint is written after so many commits, or after that time where there
	// was a commit. Defaults 50,000 and 1 min.
	CheckpointCommits int
	CheckpointEvery   time.Duration

	// EndedRetention is how long a repeated submission of a run that is over gets its answer. Default 24 h.
	EndedRetention time.Duration
	// EndedMax bounds the remembered ended runs of a partition; the oldest go first. Default 1,000,000.
	EndedMax int
	// UnsettledMax bounds the ended runs of a partition that stay loaded while an action of theirs has no known outcome.
	// Default 10,000.
	UnsettledMax int
	// Linger and LingerMax: an ended run stays loaded so long, so that redelivered reports are known as repeats; at most so
	// many of a partition. Defaults 30 s, 1,000.
	Linger    time.Duration
	LingerMax int

	// ReportBatch is how many reports one pull asks for. Default 1024.
	ReportBatch int
	// ReportPullBytes bounds what one pull brings, so that large reports do not fill the connection. Default 16 MB; at least
	// two of the largest messages that the server takes.
	ReportPullBytes int
	// ReportAckWait is after how long a report that was not acknowledged comes again. Default 10 s.
	ReportAckWait time.Duration
	// ReportMaxPending bounds the reports of a partition that are in hand. Default 8192.
	ReportMaxPending int
	// ReportQueueBytes bounds the bytes of reports that wait in memory. Default 64 MB.
	ReportQueueBytes int
	// PullExpiry is after how long a pull is renewed. Default 2 s, at least 1 s.
	PullExpiry time.Duration
	// HeldRetry is after how long the reports of a run that this binary must not go on with come again. Default 30 s.
	HeldRetry time.Duration
	// FullRetry is the pause before a group is tried again that the log's storage had no room for. Default 1 s.
	FullRetry time.Duration
	// DrainTimeout bounds how long partitions are finished at the end; what is not in the log by then is left to the next
	// owner. Default 20 s.
	DrainTimeout time.Duration
	// AnswerPrefix: reports are answered on subjects that start so, and on no others. Default "_INBOX.".
	AnswerPrefix string
}

func (c Config) withDefaults() Config {
	def := func(p *time.Duration, d time.Duration) {
		if *p == 0 {
			*p = d
		}
	}
	num := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = memberToken(host) + "-" + nuid.Next()[14:]
	}
	if c.Clock == nil {
		c.Clock = newSteadyClock()
	}
	def(&c.Lease, 3*time.Second)
	def(&c.SweepEvery, 30*time.Second)
	def(&c.CheckEvery, 10*time.Second)
	num(&c.GroupMaxBytes, 2<<20)
	num(&c.GroupMaxReports, 4096)
	num(&c.CommitMaxEvents, 256)
	def(&c.GroupLinger, 5*time.Millisecond)
	if c.SnapshotEvery == 0 {
		c.SnapshotEvery = 1000
	}
	num(&c.CheckpointCommits, 50_000)
	def(&c.CheckpointEvery, time.Minute)
	def(&c.EndedRetention, 24*time.Hour)
	num(&c.EndedMax, 1_000_000)
	num(&c.UnsettledMax, 10_000)
	def(&c.Linger, 30*time.Second)
	num(&c.LingerMax, 1000)
	num(&c.ReportBatch, 1024)
	def(&c.ReportAckWait, 10*time.Second)
	num(&c.ReportPullBytes, 16<<20)
	num(&c.ReportMaxPending, 8192)
	num(&c.ReportQueueBytes, 64<<20)
	def(&c.PullExpiry, 2*time.Second)
	def(&c.HeldRetry, 30*time.Second)
	def(&c.FullRetry, time.Second)
	def(&c.DrainTimeout, 20*time.Second)
	if c.AnswerPrefix == "" {
		c.AnswerPrefix = "_INBOX."
	}
	return c
}

// memberToken keeps what may stand in a key.
func memberToken(s string) string {
	out := []byte(s)
	for i, b := range out {
		ok := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_'
		if !ok {
			out[i] = '-'
		}
	}
	if len(out) == 0 {
		return "executor"
	}
	return string(out[:min(len(out), 40)])
}
