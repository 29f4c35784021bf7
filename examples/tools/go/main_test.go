package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
	"github.com/cairnrun/cairn/pkg/tool"
)

// The action is published as the router does, and the result read as it does.
func TestExampleServesItsTools(t *testing.T) {
	server, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	nc, js, err := bus.Connect(server.Bus("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := bus.Init(t.Context(), js, bus.Layout{Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done, ready := make(chan error, 1), make(chan struct{}, 1)
	b := server.Bus("tools")
	go func() {
		done <- serve(ctx, tool.Config{URL: b.URL, Options: b.Options, OnReady: func(err error) {
			if err == nil {
				ready <- struct{}{}
			}
		}})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	case <-time.After(20 * time.Second):
		t.Fatal("not ready")
	}
	results, err := nc.SubscribeSync(tool.ResultPrefix + ">")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ arguments, want string }{
		"stock.check": {`{"sku":"phone-128"}`, `{"left":3}`},
		"payment.pay": {`{"order":"o1","cents":899900}`, `{"receipt":"o1/key-1"}`},
	} {
		body := tool.ActionMessage{RunID: "r1", StepID: "s", ActionID: "s-1", Attempt: 1, Tool: name, Arguments: []byte(c.arguments)}
		data, err := body.Encode()
		if err != nil {
			t.Fatal(err)
		}
		m := nats.NewMsg(tool.ActionSubject("r1", "s-1", name))
		m.Data = data
		m.Header.Set(tool.HeaderIdempotencyKey, "key-1")
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		r, err := results.NextMsg(20 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := output(r.Data); err != nil || got != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAnUnknownArticleIsAPlanFault(t *testing.T) {
	_, err := checkStock(t.Context(), stockInput{SKU: "phone-9"})
	var e *tool.Error
	if !errors.As(err, &e) || e.Code != tool.CodeResourceMissing {
		t.Errorf("error %v", err)
	}
}

func output(body []byte) (string, error) {
	var r tool.ResultMessage
	if err := json.Unmarshal(body, &r); err != nil {
		return "", err
	}
	if r.Status != tool.StatusSuccess {
		return "", fmt.Errorf("the result is %s", body)
	}
	return string(r.Output), nil
}
