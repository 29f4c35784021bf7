package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/internal/bench/responder"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/eventlog"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// bare starts an owner for each partition that does what an executor does on the bus and nothing of what it decides: it
// counts a run's reports, appends groups, publishes the next call, acknowledges. The difference to it is what deciding
// costs, on the same machine in the same minute.
func (s *stack) bare(ctx context.Context) (stop func(), err error) {
	nc, js, err := bus.Connect(s.dial("bare"))
	if err != nil {
		return nil, err
	}
	inbox := nc.NewInbox()
	if _, err := nc.Subscribe(inbox, func(*nats.Msg) {}); err != nil {
		return nil, err
	}
	for p := range s.o.partitions {
		name := fmt.Sprintf("bare-%d", p)
		if _, err := js.CreateConsumer(ctx, bus.StreamReports, jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 8192, FilterSubject: bus.ReportSubject(p, "*"), MemoryStorage: true,
		}); err != nil {
			return nil, err
		}
		o := &bareOwner{stack: s, nc: nc, inbox: inbox, partition: p, reports: map[string]int{}, ready: make(chan struct{}, 1)}
		if _, err := responder.Pull(nc, bus.StreamReports, name, 1024, o.receive); err != nil {
			return nil, err
		}
		go o.serve(ctx)
	}
	return nc.Close, nil
}

type bareOwner struct {
	stack     *stack
	nc        *nats.Conn
	inbox     string
	partition int
	reports   map[string]int
	ready     chan struct{}

	mu    sync.Mutex
	queue []*nats.Msg
}

func (o *bareOwner) receive(m *nats.Msg) {
	o.mu.Lock()
	o.queue = append(o.queue, m)
	o.mu.Unlock()
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

func (o *bareOwner) serve(ctx context.Context) {
	sequence := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.ready:
		}
		o.mu.Lock()
		batch := o.queue
		o.queue = nil
		o.mu.Unlock()
		g := &runv1.Group{Partition: int32(o.partition)}
		var works []*runv1.Work
		for _, m := range batch {
			r := &runv1.Report{}
			if proto.Unmarshal(m.Data, r) != nil {
				continue
			}
			id := r.GetRunId()
			n := o.reports[id]
			o.reports[id]++
			c := &runv1.Commit{RunId: id}
			switch {
			case n == 0:
				works = append(works, &runv1.Work{RunId: id, Body: &runv1.Work_Plan{Plan: &runv1.PlanWork{RequestId: "plan-1", Spec: r.GetSubmitRun().GetSpec()}}})
			case n <= 5:
				works = append(works, &runv1.Work{RunId: id, Body: &runv1.Work_Call{Call: &runv1.CallWork{ActionId: fmt.Sprintf("s%d-1", n-1)}}})
			default:
				c.Phase = runv1.RunPhase_RUN_PHASE_ENDED
				delete(o.reports, id)
			}
			data, err := proto.Marshal(c)
			if err != nil {
				continue
			}
			g.Entries = append(g.Entries, &runv1.Entry{RunId: id, Encoding: runv1.Encoding_ENCODING_RAW, Commit: data})
		}
		data, err := eventlog.EncodeGroup(g)
		if err == nil {
			sequence, err = o.stack.log.Append(ctx, o.partition, sequence, data)
		}
		if err != nil {
			return
		}
		for _, w := range works {
			subject := bus.PlanSubject(w.GetRunId(), "plan-1")
			if w.GetCall() != nil {
				subject = bus.CallSubject(w.GetRunId(), w.GetCall().GetActionId())
			}
			if data, err := proto.Marshal(w); err == nil {
				_ = o.nc.PublishRequest(subject, o.inbox, data)
			}
		}
		for _, m := range batch {
			_ = o.nc.Publish(m.Reply, []byte("+ACK"))
		}
	}
}
