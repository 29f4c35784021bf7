package bus_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cairnrun/cairn/pkg/bus"
)

func TestAwaitTellsWhatIsMissingAndWaitsForIt(t *testing.T) {
	js := connect(t)
	if err := js.DeleteStream(t.Context(), bus.StreamWork); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	done := make(chan error, 1)
	go func() { done <- bus.Await(t.Context(), js, func(err error) { told <- err }) }()
	if err := receive(t, told, "what is missing"); !errors.Is(err, bus.ErrMissing) {
		t.Errorf("told %v", err)
	}
	if err := bus.Init(t.Context(), js, bus.Layout{}); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, done, "the end of waiting"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := js.DeleteStream(t.Context(), bus.StreamWork); err != nil {
		t.Fatal(err)
	}
	if err := bus.Await(ctx, js, func(error) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}
