package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Names of streams, key-value buckets and object buckets.
const (
	StreamLog     = "CAIRN_LOG"
	StreamReports = "CAIRN_REPORTS"
	StreamWork    = "CAIRN_WORK"
	StreamActions = "CAIRN_ACTIONS"
	StreamResults = "CAIRN_RESULTS"
	StreamEvents  = "CAIRN_EVENTS"
	StreamDead    = "CAIRN_DEAD"

	BucketTools       = "CAIRN_TOOLS"
	BucketClaims      = "CAIRN_CLAIMS"
	BucketOwners      = "CAIRN_OWNERS"
	BucketArtifacts   = "CAIRN_ARTIFACTS"
	BucketCheckpoints = "CAIRN_CHECKPOINTS"
)

// metaPartitions is the key of the log stream's metadata that fixes the number of partitions for good.
const metaPartitions = "cairn.partitions"

// ErrMissing is wrapped by errors that name a stream or bucket that is not there. Nothing re-creates it silently.
var ErrMissing = errors.New("missing stream")

// ErrPartitions says that a log cannot have, or does not have, the number of partitions that was asked for.
var ErrPartitions = errors.New("partitions")

// Layout is what Init creates.
type Layout struct {
	// Partitions of the log; fixed once created. Default 4.
	Partitions int
	// Replicas of every stream; 1 or 3. Default 1.
	Replicas int
	// EventsMaxAge and EventsMaxBytes bound the event feed. Defaults: a day, 1 GB.
	EventsMaxAge   time.Duration
	EventsMaxBytes int64
	// DeadMaxAge and DeadMaxBytes bound the dead letters; the oldest go first. Defaults: a week, 1 GB.
	DeadMaxAge   time.Duration
	DeadMaxBytes int64
}

func (l Layout) withDefaults() Layout {
	if l.Partitions == 0 {
		l.Partitions = 4
	}
	if l.Replicas == 0 {
		l.Replicas = 1
	}
	if l.EventsMaxAge == 0 {
		l.EventsMaxAge = 24 * time.Hour
	}
	if l.EventsMaxBytes == 0 {
		l.EventsMaxBytes = 1 << 30
	}
	if l.DeadMaxAge == 0 {
		l.DeadMaxAge = 7 * 24 * time.Hour
	}
	if l.DeadMaxBytes == 0 {
		l.DeadMaxBytes = 1 << 30
	}
	return l
}

// maxPartitions bounds Layout.Partitions: many partitions make groups small.
const maxPartitions = 256

// Init creates what is missing and leaves what is there. It refuses another number of partitions than the log has.
func Init(ctx context.Context, js jetstream.JetStream, l Layout) error {
	l = l.withDefaults()
	if l.Partitions < 1 || l.Partitions > maxPartitions {
		return fmt.Errorf("%w: %d is outside 1 to %d", ErrPartitions, l.Partitions, maxPartitions)
	}
	if n, err := Partitions(ctx, js); err == nil && n != l.Partitions {
		return fmt.Errorf("%w: the log has %d, fixed when it was created; asked for %d", ErrPartitions, n, l.Partitions)
	} else if err != nil && !errors.Is(err, ErrMissing) {
		return err
	}
	for _, c := range l.streams() {
		if _, err := js.CreateStream(ctx, c); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return fmt.Errorf("create stream %s: %w", c.Name, err)
		}
	}
	for _, c := range l.keyValues() {
		if _, err := js.CreateKeyValue(ctx, c); err != nil && !errors.Is(err, jetstream.ErrBucketExists) {
			return fmt.Errorf("create bucket %s: %w", c.Bucket, err)
		}
	}
	for _, c := range l.objects() {
		if _, err := js.CreateObjectStore(ctx, c); err != nil && !errors.Is(err, jetstream.ErrBucketExists) {
			return fmt.Errorf("create object bucket %s: %w", c.Bucket, err)
		}
	}
	return nil
}

// Check reports the first stream or bucket that is missing, by name and with what to do.
func Check(ctx context.Context, js jetstream.JetStream) error {
	var l Layout
	names := make([]string, 0, 12)
	for _, c := range l.streams() {
		names = append(names, c.Name)
	}
	for _, c := range l.keyValues() {
		names = append(names, "KV_"+c.Bucket)
	}
	for _, c := range l.objects() {
		names = append(names, "OBJ_"+c.Bucket)
	}
	for _, name := range names {
		if _, err := js.Stream(ctx, name); err != nil {
			return missing(name, err)
		}
	}
	return nil
}

// Partitions returns the log's number of partitions.
func Partitions(ctx context.Context, js jetstream.JetStream) (int, error) {
	s, err := js.Stream(ctx, StreamLog)
	if err != nil {
		return 0, missing(StreamLog, err)
	}
	n, err := strconv.Atoi(s.CachedInfo().Config.Metadata[metaPartitions])
	if err != nil || n < 1 {
		return 0, fmt.Errorf("stream %s: metadata %s is not a positive number: it was not created by cairn init", StreamLog, metaPartitions)
	}
	return n, nil
}

func missing(name string, err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: %s; create streams with: cairn init --nats URL", ErrMissing, strings.TrimPrefix(name, "KV_"))
	}
	return fmt.Errorf("stream %s: %w", name, err)
}

func (l Layout) streams() []jetstream.StreamConfig {
	queue := func(name, subject string) jetstream.StreamConfig {
		c := jetstream.StreamConfig{
			Name: name, Subjects: []string{subject}, Retention: jetstream.WorkQueuePolicy,
			Storage: jetstream.FileStorage, Replicas: l.Replicas, Duplicates: time.Minute,
		}
		if l.Replicas == 1 {
			// They may lose their tail at a power cut: reports and work are sent again.
			c.PersistMode = jetstream.AsyncPersistMode
		}
		return c
	}
	// A second message of the same subject is refused while the first waits: that is how work is sent at most once.
	once := func(c jetstream.StreamConfig) jetstream.StreamConfig {
		c.MaxMsgsPerSubject, c.Discard, c.DiscardNewPerSubject = 1, jetstream.DiscardNew, true
		return c
	}
	events := jetstream.StreamConfig{
		Name: StreamEvents, Subjects: []string{EventPrefix + ">"}, Retention: jetstream.LimitsPolicy,
		Storage: jetstream.FileStorage, Replicas: l.Replicas, MaxAge: l.EventsMaxAge, MaxBytes: l.EventsMaxBytes,
		Discard: jetstream.DiscardOld, Duplicates: 2 * time.Minute,
	}
	dead := jetstream.StreamConfig{
		Name: StreamDead, Subjects: []string{DeadLetterPrefix + ">"}, Retention: jetstream.LimitsPolicy,
		Storage: jetstream.FileStorage, Replicas: l.Replicas, MaxAge: l.DeadMaxAge, MaxBytes: l.DeadMaxBytes, Discard: jetstream.DiscardOld,
	}
	if l.Replicas == 1 {
		// They may lose their tail at a power cut: the log has every event, and dead letters are for people. A large one that
		// is synced would hold up everything else on its sender's connection.
		events.PersistMode, dead.PersistMode = jetstream.AsyncPersistMode, jetstream.AsyncPersistMode
	}
	return []jetstream.StreamConfig{
		{
			Name: StreamLog, Subjects: []string{LogPrefix + "*"}, Retention: jetstream.LimitsPolicy,
			Storage: jetstream.FileStorage, Replicas: l.Replicas, DenyDelete: true, Duplicates: time.Second,
			Metadata: map[string]string{metaPartitions: strconv.Itoa(l.Partitions)},
		},
		queue(StreamReports, ReportPrefix+"*.*"),
		once(queue(StreamWork, "cairn.work.>")),
		once(queue(StreamActions, "cairn.action.>")),
		queue(StreamResults, "cairn.result.>"),
		events,
		dead,
	}
}

func (l Layout) keyValues() []jetstream.KeyValueConfig {
	return []jetstream.KeyValueConfig{
		{Bucket: BucketTools, History: 16, Storage: jetstream.FileStorage, Replicas: l.Replicas},
		{Bucket: BucketClaims, History: 1, Storage: jetstream.FileStorage, Replicas: l.Replicas},
		{Bucket: BucketOwners, History: 1, Storage: jetstream.FileStorage, Replicas: l.Replicas, LimitMarkerTTL: time.Minute},
	}
}

func (l Layout) objects() []jetstream.ObjectStoreConfig {
	return []jetstream.ObjectStoreConfig{
		{Bucket: BucketArtifacts, Storage: jetstream.FileStorage, Replicas: l.Replicas},
		{Bucket: BucketCheckpoints, Storage: jetstream.FileStorage, Replicas: l.Replicas},
	}
}
