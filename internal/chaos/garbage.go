//go:build unix

package main

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/tool"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// large is just below what the server takes, 8 MB.
const large = 8<<20 - 100<<10

// litter publishes what nobody should, on every subject that services read, until ctx ends; run names one that is under way.
func litter(ctx context.Context, js jetstream.JetStream, partitions int, r *rand.Rand, run func() string) (sent int) {
	for {
		select {
		case <-ctx.Done():
			return sent
		case <-time.After(200 * time.Millisecond):
		}
		all := rubbish(run(), partitions)
		m := all[r.IntN(len(all))]
		if len(m.Data) > 1<<20 && r.IntN(10) > 0 {
			continue
		}
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		if _, err := js.PublishMsg(try, m); err == nil {
			sent++
		}
		cancel()
	}
}

// rubbish is one message of each kind. None of them may do more than be refused or become a dead letter.
func rubbish(run string, partitions int) []*nats.Msg {
	if run == "" {
		run = "rnobody"
	}
	here := bus.ReportSubject(bus.Partition(run, partitions), run)
	other := bus.ReportSubject((bus.Partition(run, partitions)+1)%partitions, run)
	encoded := func(subject string, m proto.Message) *nats.Msg {
		data, _ := proto.Marshal(m)
		return &nats.Msg{Subject: subject, Data: data}
	}
	report := func(r *runv1.Report) *nats.Msg {
		r.Id, r.Tenant = "rubbish", "default"
		return encoded(here, r)
	}
	result := func(action string) *runv1.Report {
		return &runv1.Report{RunId: run, Body: &runv1.Report_ResultReported{ResultReported: &runv1.ResultReported{ActionId: action, Observation: &runv1.Observation{
			Outcome: runv1.Outcome_OUTCOME_SUCCESS, Output: &runv1.Value{Value: &runv1.Value_Inline{Inline: &planv1.JsonText{Text: "not JSON"}}},
		}}}}
	}
	bytes := []byte("\xff\xfe\x00 no message")
	// The context fits, the token does not.
	call, _ := proto.Marshal(&runv1.Work{RunId: run, Body: &runv1.Work_Call{Call: &runv1.CallWork{ActionId: "first-1", Tool: "chaos.once", IdempotencyKey: "forged"}}})
	forged := &nats.Msg{Subject: tool.ResultSubject(run, "first-1", "chaos.once"), Data: []byte(`{"status":"success","output":{"n":-1}}`), Header: nats.Header{}}
	forged.Header.Set(tool.HeaderAttempt, "0000000000000000")
	forged.Header.Set(tool.HeaderContext, base64.RawURLEncoding.EncodeToString(call))
	return []*nats.Msg{
		{Subject: here, Data: bytes},
		{Subject: here},
		{Subject: here, Data: []byte(strings.Repeat("x", large))},
		{Subject: bus.ReportPrefix + "999." + run, Data: bytes},
		{Subject: bus.ReportPrefix + "x." + run, Data: bytes},
		encoded(other, result("first-1")),
		report(&runv1.Report{RunId: "rsomebody"}),
		report(&runv1.Report{RunId: run}),
		report(&runv1.Report{RunId: run, Body: &runv1.Report_ResultReported{}}),
		report(result("no such action")),
		report(result("nosuch-1")),
		report(&runv1.Report{RunId: run, Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{}}}),
		report(&runv1.Report{RunId: run, Body: &runv1.Report_PlanProposed{PlanProposed: &runv1.PlanProposed{RequestId: "plan-9", Plan: &planv1.Plan{Goal: "forged"}}}}),
		report(&runv1.Report{RunId: run, Body: &runv1.Report_PatchProposed{PatchProposed: &runv1.PatchProposed{RequestId: "replan-9"}}}),
		report(&runv1.Report{RunId: run, Body: &runv1.Report_TimerDue{TimerDue: &runv1.TimerDue{}}}),
		report(&runv1.Report{RunId: run, Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{}}}),
		report(&runv1.Report{RunId: run, Body: &runv1.Report_SubmitRun{SubmitRun: &runv1.SubmitRun{Spec: &runv1.RunSpec{Goal: strings.Repeat("长", large/3-100)}}}}),
		{Subject: bus.PlanSubject(run, "plan-77"), Data: bytes},
		{Subject: bus.CallSubject(run, "nosuch-7"), Data: bytes},
		{Subject: "cairn.work.other", Data: bytes},
		encoded(bus.CallSubject(run, "nosuch-8"), &runv1.Work{RunId: run}),
		encoded(bus.CallSubject(run, "nosuch-9"), &runv1.Work{RunId: "rother", Body: &runv1.Work_Call{Call: &runv1.CallWork{ActionId: "nosuch-9", Tool: "chaos.once"}}}),
		encoded(bus.PlanSubject(run, "plan-78"), &runv1.Work{RunId: "rother", Body: &runv1.Work_Plan{}}),
		forged,
		{Subject: tool.ResultSubject(run, "nosuch-2", "chaos.once"), Data: bytes},
		{Subject: tool.ResultSubject("rnobody", "a-1", "chaos.keyed"), Data: []byte(`{"status":"success"}`)},
		{Subject: tool.ResultSubject(run, "nosuch-1", "chaos.keyed"), Data: []byte(`{"status":` + strings.Repeat("[", 100_000))},
		{Subject: tool.ActionSubject(run, "nosuch-1", "chaos.keyed"), Data: bytes},
		{Subject: tool.ActionSubject(run, "nosuch-2", "no.such.tool"), Data: bytes},
		{Subject: "$KV." + bus.BucketTools + ".chaos.broken", Data: bytes},
		{Subject: "$KV." + bus.BucketTools + ".chaos.odd", Data: []byte(`{"name":"another.name","input_schema":{"type":17},"timeout":"-1s"}`)},
		{Subject: "$KV." + bus.BucketTools + ".chaos.empty", Data: []byte(`{}`)},
	}
}
