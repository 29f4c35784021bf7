package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pinned are the programs in use. A new version may change generated code: run generate and commit both together.
var pinned = []struct{ pkg, version string }{
	{"github.com/bufbuild/buf/cmd/buf", "v1.75.0"},
	{"google.golang.org/protobuf/cmd/protoc-gen-go", "v1.36.12"},
	{"google.golang.org/grpc/cmd/protoc-gen-go-grpc", "v1.6.0"},
	{"github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway", "v2.33.0"},
	{"github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2", "v2.33.0"},
}

// toolbox runs buf with the pinned plugins in the module's root.
type toolbox struct {
	ctx  context.Context
	root string
	buf  string
	path string
}

// install builds what is not there yet.
func install(ctx context.Context, root string) (*toolbox, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOCACHE: %w", err)
	}
	cache := filepath.Join(strings.TrimSpace(string(out)), "cairn-generate")
	b := &toolbox{ctx: ctx, root: root}
	var dirs []string
	for _, p := range pinned {
		name := filepath.Base(p.pkg)
		dir := filepath.Join(cache, name+"@"+p.version)
		dirs = append(dirs, dir)
		binary := filepath.Join(dir, name)
		if name == "buf" {
			b.buf = binary
		}
		if _, err := os.Stat(binary); err == nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "building %s %s …\n", name, p.version)
		cmd := exec.CommandContext(ctx, "go", "install", p.pkg+"@"+p.version)
		cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=-mod=mod")
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("install %s@%s: %w", p.pkg, p.version, err)
		}
	}
	b.path = strings.Join(append(dirs, os.Getenv("PATH")), string(os.PathListSeparator))
	return b, nil
}

// run calls buf; what it says goes to standard error.
func (b *toolbox) run(args ...string) error {
	cmd := exec.CommandContext(b.ctx, b.buf, args...)
	cmd.Dir = b.root
	cmd.Env = append(os.Environ(), "PATH="+b.path)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
