package executor

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
	"github.com/cairnrun/cairn/pkg/run"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// Codes of answers that the owner gives without the core.
const (
	codeRunClosed   = "run_closed"
	codeUnknownRun  = "unknown_run"
	codeKeyReused   = "key_reused"
	codeQuarantined = "run_quarantined"
	codeTooLarge    = "report_too_large"
)

// receive judges one delivered report into the group being filled.
func (o *owner) receive(r *report) {
	r.msg = &runv1.Report{}
	if err := proto.Unmarshal(r.data, r.msg); err != nil {
		o.out.Dead(r, "it is no report: "+err.Error())
		return
	}
	id := r.msg.GetRunId()
	switch {
	case id == "" || bus.RunOf(r.subject) != id:
		o.out.Dead(r, fmt.Sprintf("it is about run %q and came on subject %s", id, r.subject))
		return
	case bus.Partition(id, o.partitions) != o.partition:
		o.out.Dead(r, fmt.Sprintf("run %s belongs to partition %d of %d, not to %d", id, bus.Partition(id, o.partitions), o.partitions, o.partition))
		return
	case r.msg.GetBody() == nil:
		o.out.Dead(r, "it says nothing that this executor knows; a newer sender needs a newer executor")
		return
	case r.msg.GetTimerDue() != nil:
		o.out.Dead(r, "timers are the owner's own, they do not travel")
		return
	}
	ru := o.runs[id]
	if ru == nil {
		if ru = o.meet(r); ru == nil {
			return
		}
	}
	o.judge(ru, r)
}

// meet answers reports on runs that are not loaded, or makes the run that a submission asks for.
func (o *owner) meet(r *report) *openRun {
	id := r.msg.GetRunId()
	submit := r.msg.GetSubmitRun() != nil
	if e := o.ended.byID[id]; e != nil {
		a := &runv1.Answer{RunId: id, Revision: e.revision, Status: e.status, Partition: int32(o.partition), LogSequence: e.sequence}
		switch {
		case !submit:
			a.Outcome, a.Code, a.Message = runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, codeRunClosed, "the run has ended; nothing is taken any more"
		case o.digestOf(r.msg) == e.digest:
			a.Outcome = runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED
		default:
			a.Outcome, a.Code = runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, codeKeyReused
			a.Message = "the same request id was used before with another body; choose another id"
		}
		o.finishNow(r, a)
		return nil
	}
	if !submit {
		o.finishNow(r, &runv1.Answer{
			RunId: id, Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, Code: codeUnknownRun, Partition: int32(o.partition),
			Message: "there is no such run, or it ended longer ago than its end is remembered", LogSequence: o.chain.Sequence,
		})
		return nil
	}
	ru := newOpenRun(id)
	return ru
}

// digestOf is the digest that the core gives the body of a submission, "" where it refuses it.
func (o *owner) digestOf(r *runv1.Report) (digest string) {
	defer func() {
		if recover() != nil {
			digest = ""
		}
	}()
	return run.Record(run.New(r.GetRunId()), r, o.cfg.Clock.Now()).GetRunSubmitted().GetBodyDigest()
}

// finishNow is for outcomes that need no new log entry: they rest on what is in the log.
func (o *owner) finishNow(r *report, a *runv1.Answer) {
	o.metrics.judged(a.GetOutcome())
	if r.answerTo != "" {
		o.out.Answer(r.answerTo, a)
	}
	if r.settle != nil {
		r.settle.Ack()
	}
}

// judge lets the core judge a report on a run, and takes what follows into the group being filled.
func (o *owner) judge(ru *openRun, r *report) {
	switch {
	case ru.held != "":
		r.settle.Nak(o.cfg.HeldRetry)
		return
	case ru.more:
		ru.waiting = append(ru.waiting, r)
		return
	}
	c := o.openCommit(ru, r.msg.GetTimerDue())
	step, err := guarded(func() run.Step { return o.core.advance(ru.head.state, r.msg, c.time) })
	if err != nil {
		o.quarantine(ru, r, c, err)
		return
	}
	if step.Event == nil && len(step.Events) == 0 {
		o.repeat(ru, r, step.State)
		return
	}
	if step.Event.GetReportRefused() != nil && ru.head.state.Revision() == 0 {
		// A run that does not come to be has no log to record the refusal in.
		a := run.AnswerFor(step.State, r.msg, step.Event)
		a.Revision, a.Partition, a.LogSequence = 0, int32(o.partition), o.chain.Sequence
		o.finishNow(r, a)
		return
	}
	if len(c.events) > 0 && len(c.events)+len(step.Events) > o.cfg.CommitMaxEvents {
		c = newCommit(ru, c.time, c.began)
	}
	before := c.writer
	if err := c.add(step.Events); err != nil {
		c.writer = before
		o.quarantine(ru, r, c, err)
		return
	}
	if size := c.writer.Size() - before.Size(); size > o.maxMessage && tooLarge(step, o.maxMessage) {
		c.writer = before
		o.refuseTooLarge(ru, r, c, size)
		return
	}
	o.commit(ru, c, step)
	if r.msg.GetTrace() != nil {
		c.traces = append(c.traces, r.msg.GetTrace())
	}
	var answer *runv1.Answer
	if r.answerTo != "" {
		answer = run.AnswerFor(step.State, r.msg, step.Event)
	}
	o.metrics.event(step.Event)
	o.fill.reports = append(o.fill.reports, judged{r, answer, outcomeOf(step.Event)})
}

// openCommit returns the commit of the run that takes more in the group being filled, or a new one that is not in it yet.
func (o *owner) openCommit(ru *openRun, timer *runv1.TimerDue) *commit {
	due := time.Time{}
	if timer.GetDue() != nil {
		due = timer.GetDue().AsTime()
	}
	if b := ru.building; b != nil && len(b.events) < o.cfg.CommitMaxEvents && !due.After(b.time) {
		return b
	}
	now := o.cfg.Clock.Now()
	t := now
	for _, x := range []time.Time{ru.head.time, due} {
		if x.After(t) {
			t = x
		}
	}
	return newCommit(ru, t, now)
}

func newCommit(ru *openRun, t, began time.Time) *commit {
	c := &commit{run: ru, time: t, began: began}
	c.writer.Begin(timestamppb.New(t))
	return c
}

// add encodes events into the commit.
func (c *commit) add(events []*runv1.Event) error {
	for _, e := range events {
		if err := c.writer.Add(e); err != nil {
			return err
		}
	}
	return nil
}

// commit takes a step, whose events were added to commit c, into the group being filled.
func (o *owner) commit(ru *openRun, c *commit, step run.Step) {
	if ru.building != c {
		o.fill.commits = append(o.fill.commits, c)
	}
	if o.runs[ru.id] == nil {
		o.runs[ru.id] = ru
	}
	if len(c.events) == 0 {
		c.events = step.Events
	} else {
		c.events = append(c.events, step.Events...)
	}
	c.state, c.more = step.State, step.More
	o.fill.bytes += c.writer.Size() - c.counted
	c.counted = c.writer.Size()
	for _, e := range step.Events {
		switch {
		case e.GetStepRetryScheduled() != nil:
			ru.retries++
		case e.GetReplanRequested() != nil:
			ru.replans++
		}
	}
	ru.building = c
	if step.More {
		// A commit that has more after it takes nothing else.
		ru.building = nil
		if !ru.more {
			ru.more = true
			o.unfinished = append(o.unfinished, ru)
		}
	}
	ru.head.state, ru.head.time = step.State, c.time
	ru.group = o.fill.number
	ru.touched = c.began
	ru.lead = lead(c.time, c.began)
	o.schedule(ru)
}

// goOn lets the core finish deciding for a run whose last commit said that there is more.
func (o *owner) goOn(ru *openRun) {
	ru.more = false
	c := o.openCommit(ru, nil)
	step, err := guarded(func() run.Step { return o.core.proceed(ru.head.state, c.time) })
	if err != nil {
		o.quarantine(ru, nil, c, err)
	} else if len(step.Events) > 0 {
		before := c.writer
		if err := c.add(step.Events); err != nil {
			c.writer = before
			o.quarantine(ru, nil, c, err)
		} else {
			o.commit(ru, c, step)
		}
	}
	if ru.more {
		return
	}
	waiting := ru.waiting
	ru.waiting = nil
	for _, r := range waiting {
		o.judge(ru, r)
	}
}

// schedule puts the run's next deadline into the heap.
func (o *owner) schedule(ru *openRun) {
	d, ok := run.NextDeadline(ru.head.state)
	if !ok || ru.held != "" {
		o.timers.set(ru, time.Time{})
		return
	}
	o.timers.set(ru, dueOn(d, ru.lead))
}

// fire turns a due deadline into a report and judges it.
func (o *owner) fire(ru *openRun, now time.Time) {
	d, ok := run.NextDeadline(ru.head.state)
	if !ok || ru.held != "" {
		o.timers.set(ru, time.Time{})
		return
	}
	before := ru.head.state.Revision()
	o.judge(ru, &report{settle: unsent{}, msg: &runv1.Report{
		Id: fmt.Sprintf("timer-%s-%d", ru.id, before), RunId: ru.id, Tenant: ru.head.state.Tenant(),
		ReportedAt: timestamppb.New(now), Body: &runv1.Report_TimerDue{TimerDue: d.Timer},
	}})
	if ru.head.state.Revision() == before && !ru.more {
		// The core takes it for a repeat and still asks for it: never turn in a circle for that.
		o.log.Error("deadline is due and changes nothing", "run_id", ru.id, "timer", d.Timer.GetTimer().String())
		o.timers.set(ru, now.Add(time.Minute))
	}
}

// unsent is the delivery of reports that the owner makes itself.
type unsent struct{}

// Ack implements delivery.
func (unsent) Ack() {}

// Nak implements delivery.
func (unsent) Nak(time.Duration) {}

// repeat answers what is known already, once the log holds what it is known from.
func (o *owner) repeat(ru *openRun, r *report, s run.State) {
	var a *runv1.Answer
	if r.answerTo != "" {
		a = run.AnswerFor(s, r.msg, nil)
	}
	if ru.group > o.settled {
		// It rests on a group that is under way or being filled.
		g := o.fill
		if o.flight != nil && ru.group == o.flight.number {
			g = o.flight
		}
		g.reports = append(g.reports, judged{r, a, outcomeOf(nil)})
		return
	}
	if a == nil {
		a = &runv1.Answer{Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_REPEATED}
	}
	a.Partition, a.LogSequence = int32(o.partition), ru.acked.sequence
	o.finishNow(r, a)
}

// quarantine takes a run out of service whose core cannot go on; what it had before the report stays.
func (o *owner) quarantine(ru *openRun, r *report, c *commit, cause error) {
	o.log.Error("the core cannot go on with this run; it is quarantined, cancel and export still work", "run_id", ru.id, "revision", ru.head.state.Revision(), "error", cause)
	reportID := r.reportID()
	step, err := guarded(func() run.Step {
		e := run.Quarantine(ru.head.state, firstLine(cause), reportID, c.time)
		return run.Step{State: run.Evolve(ru.head.state, e), Event: e, Events: []*runv1.Event{e}}
	})
	if err == nil && step.Event != nil {
		err = c.add(step.Events)
	}
	if err != nil || step.Event == nil || ru.head.state.Status() == runv1.RunStatus_RUN_STATUS_QUARANTINED {
		o.hold(ru, "the core cannot go on with it, nor quarantine it: "+firstLine(cause))
		if r != nil {
			r.settle.Nak(o.cfg.HeldRetry)
		}
		return
	}
	o.metrics.quarantined()
	o.commit(ru, c, step)
	if r == nil {
		return
	}
	var a *runv1.Answer
	if r.answerTo != "" {
		a = &runv1.Answer{
			RunId: ru.id, Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, Code: codeQuarantined, Revision: step.State.Revision(),
			Status: step.State.Status(), Message: "the run is quarantined: " + firstLine(cause),
		}
	}
	o.fill.reports = append(o.fill.reports, judged{r, a, outcomeOf(step.Event)})
}

func (r *report) reportID() string {
	if r == nil {
		return ""
	}
	return r.msg.GetId()
}

// hold keeps a run as it is; its reports stay in their stream.
func (o *owner) hold(ru *openRun, why string) {
	ru.held = why
	o.timers.set(ru, time.Time{})
	o.log.Error("run is held back", "run_id", ru.id, "reason", why)
}

// refuseTooLarge records that a report led to more than a log message can hold.
func (o *owner) refuseTooLarge(ru *openRun, r *report, c *commit, size int) {
	message := fmt.Sprintf("what follows from the report has %d bytes, a log message holds %d (max_payload); put large values into artifacts", size, o.maxMessage)
	a := &runv1.Answer{
		RunId: ru.id, Outcome: runv1.AnswerOutcome_ANSWER_OUTCOME_REFUSED, Code: codeTooLarge, Message: message,
		Revision: ru.head.state.Revision(), Status: ru.head.state.Status(), Partition: int32(o.partition), LogSequence: o.chain.Sequence,
	}
	o.log.Warn("report refused", "run_id", ru.id, "report_id", r.msg.GetId(), "code", codeTooLarge, "bytes", size)
	if ru.head.state.Revision() == 0 {
		// A run that was never made has no log to record it in.
		o.finishNow(r, a)
		return
	}
	s := ru.head.state
	e := &runv1.Event{
		Id: eventlog.EventID(ru.id, s.Revision()+1), RunId: ru.id, Revision: s.Revision() + 1, Tenant: s.Tenant(),
		Kind: runv1.EventKind_EVENT_KIND_RECORDED, Time: timestamppb.New(c.time), Cause: &runv1.Cause{ReportId: r.msg.GetId()},
		Body: &runv1.Event_ReportRefused{ReportRefused: &runv1.ReportRefused{Report: kindOf(r.msg), Code: codeTooLarge, Message: message}},
	}
	step, err := guarded(func() run.Step {
		return run.Step{State: run.Evolve(s, e), Event: e, Events: []*runv1.Event{e}}
	})
	if err == nil {
		err = c.add(step.Events)
	}
	if err != nil {
		o.quarantine(ru, r, c, err)
		return
	}
	o.commit(ru, c, step)
	a.Revision = step.State.Revision()
	o.fill.reports = append(o.fill.reports, judged{r, a, outcomeOf(step.Event)})
}

// kindOf names a report's body as the contracts do.
func kindOf(r *runv1.Report) string {
	m := r.ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("body")); f != nil {
		return string(f.Name())
	}
	return "unknown"
}

// tooLarge looks at what would be stored, which compression makes smaller.
func tooLarge(step run.Step, limit int) bool {
	e, err := eventlog.EncodeCommit(run.NewCommit(step.State, step.Events, step.More, time.Time{}), step.State.Revision())
	return err == nil && len(e.GetCommit()) > limit-1024
}

// core is what the owner drives; tests put one in its place that breaks.
type core struct {
	advance func(s run.State, r *runv1.Report, now time.Time) run.Step
	proceed func(s run.State, now time.Time) run.Step
}

// corePanic is a panic of the core with where it happened.
type corePanic struct {
	value any
	stack string
}

func (p *corePanic) Error() string { return fmt.Sprintf("panic in the core: %v\n%s", p.value, p.stack) }

// guarded calls the core; a panic in it becomes an error.
func guarded(f func() run.Step) (step run.Step, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &corePanic{v, string(debug.Stack())}
		}
	}()
	return f(), nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
