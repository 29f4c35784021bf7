package embedded_test

import (
	"errors"
	"testing"

	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/bus/embedded"
)

func TestLayoutSurvivesRestartAndKeepsItsPartitions(t *testing.T) {
	dir := t.TempDir()
	for i := range 2 {
		s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		nc, js, err := bus.Connect(s.Bus("test"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if err := bus.Check(t.Context(), js); !errors.Is(err, bus.ErrMissing) {
				t.Fatalf("check before init: %v, want ErrMissing", err)
			}
		}
		if err := bus.Init(t.Context(), js, bus.Layout{Partitions: 3}); err != nil {
			t.Fatal(err)
		}
		if err := bus.Check(t.Context(), js); err != nil {
			t.Fatal(err)
		}
		if n, err := bus.Partitions(t.Context(), js); err != nil || n != 3 {
			t.Fatalf("partitions %d, %v", n, err)
		}
		if err := bus.Init(t.Context(), js, bus.Layout{Partitions: 4}); err == nil {
			t.Fatal("another number of partitions was accepted")
		}
		nc.Close()
		s.Close()
	}
}
