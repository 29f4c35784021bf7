package telemetry

import (
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// Scope names Cairn's tracer and meter.
const Scope = "github.com/cairnrun/cairn"

// Instruments are all of Cairn's metrics; docs/telemetry.md lists them.
type Instruments struct {
	// Runs and planning.
	RunsEnded        metric.Int64Counter
	RunRetries       metric.Int64Histogram
	RunReplans       metric.Int64Histogram
	RunDuration      metric.Float64Histogram
	StateBytes       metric.Int64Histogram
	PlansJudged      metric.Int64Counter
	PlanFindings     metric.Int64Counter
	PlannerDuration  metric.Float64Histogram
	Errors           metric.Int64Counter
	ReportsJudged    metric.Int64Counter
	GroupCommits     metric.Int64Histogram
	AppendDuration   metric.Float64Histogram
	Takeovers        metric.Int64Counter
	PartitionsOwned  metric.Int64UpDownCounter
	OpenRuns         metric.Int64UpDownCounter
	ActionsEnded     metric.Int64Counter
	ActionDuration   metric.Float64Histogram
	ProjectionLag    metric.Float64Gauge
	Watchers         metric.Int64UpDownCounter
	Messages         metric.Int64Counter
	MessageDuration  metric.Float64Histogram
	MessagesInHand   metric.Int64UpDownCounter
	DeadLetters      metric.Int64Counter
	ConsumerRestarts metric.Int64Counter
	TokenUsage       metric.Int64Histogram
	ModelDuration    metric.Float64Histogram
}

// Instrument describes one metric of the catalogue.
type Instrument struct {
	Name, Kind, Unit, Description string
}

// Catalogue lists every instrument in the order of docs/telemetry.md.
func Catalogue() []Instrument {
	out := make([]Instrument, 0, len(catalogue))
	for _, d := range catalogue {
		out = append(out, d.Instrument)
	}
	return out
}

type entry struct {
	Instrument
	create func(m metric.Meter, i *Instruments, d Instrument) error
}

func counter(field func(*Instruments) *metric.Int64Counter) func(metric.Meter, *Instruments, Instrument) error {
	return func(m metric.Meter, i *Instruments, d Instrument) (err error) {
		*field(i), err = m.Int64Counter(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Description))
		return err
	}
}

func upDown(field func(*Instruments) *metric.Int64UpDownCounter) func(metric.Meter, *Instruments, Instrument) error {
	return func(m metric.Meter, i *Instruments, d Instrument) (err error) {
		*field(i), err = m.Int64UpDownCounter(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Description))
		return err
	}
}

func gauge(field func(*Instruments) *metric.Float64Gauge) func(metric.Meter, *Instruments, Instrument) error {
	return func(m metric.Meter, i *Instruments, d Instrument) (err error) {
		*field(i), err = m.Float64Gauge(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Description))
		return err
	}
}

func sizes(field func(*Instruments) *metric.Int64Histogram, bounds ...float64) func(metric.Meter, *Instruments, Instrument) error {
	return func(m metric.Meter, i *Instruments, d Instrument) (err error) {
		*field(i), err = m.Int64Histogram(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Description), metric.WithExplicitBucketBoundaries(bounds...))
		return err
	}
}

// seconds has buckets from a millisecond to ten minutes.
func seconds(field func(*Instruments) *metric.Float64Histogram) func(metric.Meter, *Instruments, Instrument) error {
	return func(m metric.Meter, i *Instruments, d Instrument) (err error) {
		*field(i), err = m.Float64Histogram(d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Description),
			metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 180, 600))
		return err
	}
}

var catalogue = []entry{
	{Instrument{"cairn.runs.ended", "counter", "{run}", "Runs that ended, by cairn.outcome (completed, failed, cancelled, quarantined) and error.type"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.RunsEnded })},
	{Instrument{"cairn.run.retries", "histogram", "{attempt}", "Repeated attempts of a run's steps, recorded when it ends"}, sizes(func(i *Instruments) *metric.Int64Histogram { return &i.RunRetries }, 0, 1, 2, 5, 10, 20, 50, 100, 1000)},
	{Instrument{"cairn.run.replans", "histogram", "{replan}", "Replans of a run, recorded when it ends"}, sizes(func(i *Instruments) *metric.Int64Histogram { return &i.RunReplans }, 0, 1, 2, 3, 5, 10, 20)},
	{Instrument{"cairn.run.duration", "histogram", "s", "Time from submission to the end of a run"}, seconds(func(i *Instruments) *metric.Float64Histogram { return &i.RunDuration })},
	{Instrument{"cairn.run.state.size", "histogram", "By", "Size of a run's state, recorded at snapshots"}, sizes(func(i *Instruments) *metric.Int64Histogram { return &i.StateBytes }, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20)},
	{Instrument{"cairn.plans.judged", "counter", "{plan}", "Proposed plans and patches, by cairn.outcome (accepted, rejected) and cairn.planner.source: plan validity"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.PlansJudged })},
	{Instrument{"cairn.plan.findings", "counter", "{finding}", "Findings of the validator, by error.type (the finding's code)"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.PlanFindings })},
	{Instrument{"cairn.planner.duration", "histogram", "s", "Time that the planner took for a plan or a patch, by cairn.planner.source and cairn.outcome"}, seconds(func(i *Instruments) *metric.Float64Histogram { return &i.PlannerDuration })},
	{Instrument{"cairn.errors", "counter", "{error}", "Errors of steps, actions and planning, by error.type (the error's code)"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.Errors })},
	{Instrument{"cairn.reports.judged", "counter", "{report}", "Reports judged by executors, by cairn.outcome (accepted, repeated, refused)"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.ReportsJudged })},
	{Instrument{"cairn.group.commits", "histogram", "{commit}", "Commits in one group of the log"}, sizes(func(i *Instruments) *metric.Int64Histogram { return &i.GroupCommits }, 1, 2, 5, 10, 20, 50, 100, 200, 500)},
	{Instrument{"cairn.append.duration", "histogram", "s", "Time until an append to the log was acknowledged"}, seconds(func(i *Instruments) *metric.Float64Histogram { return &i.AppendDuration })},
	{Instrument{"cairn.takeovers", "counter", "{takeover}", "Partitions taken over"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.Takeovers })},
	{Instrument{"cairn.partitions.owned", "updowncounter", "{partition}", "Partitions that this executor owns"}, upDown(func(i *Instruments) *metric.Int64UpDownCounter { return &i.PartitionsOwned })},
	{Instrument{"cairn.runs.open", "updowncounter", "{run}", "Open runs of the partitions owned"}, upDown(func(i *Instruments) *metric.Int64UpDownCounter { return &i.OpenRuns })},
	{Instrument{"cairn.actions.ended", "counter", "{action}", "Actions with a result, by cairn.tool and cairn.outcome"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.ActionsEnded })},
	{Instrument{"cairn.action.duration", "histogram", "s", "Time that tools took, by cairn.tool and cairn.outcome"}, seconds(func(i *Instruments) *metric.Float64Histogram { return &i.ActionDuration })},
	{Instrument{"cairn.projection.lag", "gauge", "s", "Age of the newest group when the run store had projected it"}, gauge(func(i *Instruments) *metric.Float64Gauge { return &i.ProjectionLag })},
	{Instrument{"cairn.watchers", "updowncounter", "{watcher}", "Open watches"}, upDown(func(i *Instruments) *metric.Int64UpDownCounter { return &i.Watchers })},
	{Instrument{"cairn.messages.processed", "counter", "{message}", "Messages handled, by messaging.consumer.group.name and cairn.outcome (ack, nak, dead)"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.Messages })},
	{Instrument{"cairn.message.duration", "histogram", "s", "Time that a handler had a message, by messaging.consumer.group.name"}, seconds(func(i *Instruments) *metric.Float64Histogram { return &i.MessageDuration })},
	{Instrument{"cairn.messages.in_hand", "updowncounter", "{message}", "Messages received and neither acknowledged nor given back, by messaging.consumer.group.name"}, upDown(func(i *Instruments) *metric.Int64UpDownCounter { return &i.MessagesInHand })},
	{Instrument{"cairn.dead_letters", "counter", "{message}", "Messages that used up their deliveries or cannot be read, by messaging.consumer.group.name"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.DeadLetters })},
	{Instrument{"cairn.consumer.restarts", "counter", "{restart}", "Pulls that were lost and made again, by messaging.consumer.group.name"}, counter(func(i *Instruments) *metric.Int64Counter { return &i.ConsumerRestarts })},
	{Instrument{"gen_ai.client.token.usage", "histogram", "{token}", "Tokens of a model call, by gen_ai.token.type, gen_ai.operation.name, gen_ai.request.model"}, sizes(func(i *Instruments) *metric.Int64Histogram { return &i.TokenUsage }, 1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)},
	{Instrument{"gen_ai.client.operation.duration", "histogram", "s", "Time of a model call, by gen_ai.operation.name, gen_ai.request.model, error.type"}, seconds(func(i *Instruments) *metric.Float64Histogram { return &i.ModelDuration })},
}

// NewInstruments creates them on a meter.
func NewInstruments(m metric.Meter) (*Instruments, error) {
	i := &Instruments{}
	for _, e := range catalogue {
		if err := e.create(m, i, e.Instrument); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// Metrics returns the instruments of the process's meter provider; before Setup, and without it, they count nothing.
var Metrics = sync.OnceValue(func() *Instruments {
	i, err := NewInstruments(otel.Meter(Scope))
	if err != nil {
		// The catalogue's names and units are fixed, and a test creates them all.
		panic(err)
	}
	return i
})
