package dev

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reading are the services that only answer questions.
var reading = []string{RunStore, Gateway}

func TestAFolderHasOneHolderWhichSaysWhereItCanBeAsked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	if _, held, err := Held(dir); held || err != nil {
		t.Fatalf("nobody: %v, %v", held, err)
	}
	d, err := Start(t.Context(), Config{Dir: dir, Services: reading, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	h, held, err := Held(dir)
	if err != nil || !held || h.PID != os.Getpid() || h.Gateway != d.Gateway() {
		t.Fatalf("holder %+v, %v, %v", h, held, err)
	}
	if _, err := Start(t.Context(), Config{Dir: dir, Services: reading, NoSync: true}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("second holder: %v", err)
	}
	if !Exists(dir) {
		t.Fatal("the second try removed the folder")
	}
	d.Close()
	if _, held, _ := Held(dir); held {
		t.Fatal("still held after Close")
	}
	again, err := Start(t.Context(), Config{Dir: dir, Services: reading, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestNothingIsLeftOfAStartThatFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"port of NATS":          {Config{NATS: taken.Addr().String()}, "NATS cannot listen"},
		"port of the gateway":   {Config{Gateway: taken.Addr().String()}, "the gateway cannot listen"},
		"port of the run store": {Config{RunStore: taken.Addr().String()}, "the run store cannot listen"},
		"unknown service":       {Config{Services: []string{"mailer"}}, `no service is named "mailer"`},
		"too many partitions":   {Config{Partitions: 1000}, "partitions: 1000"},
		"no such templates":     {Config{Templates: "/nowhere.yaml", Services: []string{RunStore, Planner}}, "planner"},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Dir, c.config.NoSync = filepath.Join(t.TempDir(), "kept"), true
			_, err := Start(t.Context(), c.config)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %v, want one line with %q", err, c.want)
			}
			if _, err := os.Stat(c.config.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the folder is there: %v", err)
			}
		})
	}
}
