// Command generate makes everything that is derived from proto/: it formats and lints the contracts, generates the code
// and the OpenAPI document, and compares the contracts with the published image. Run it from anywhere in the module:
//
//	go run ./internal/generate           write what is out of date
//	go run ./internal/generate -check    write nothing; exit 1 and say what is out of date or breaks the image
//	go run ./internal/generate -image    also renew proto/image.binpb, after a release
//
// buf and its plugins are plain Go programs at fixed versions; they are built into a folder of the build cache.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

// imagePath holds the contracts as they were published; later ones must not break them.
const imagePath = "proto/image.binpb"

// outputs are the folders that hold generated files, with the endings of those.
var outputs = map[string][]string{
	"proto":                    {".pb.go"},
	"services/gateway/stub":    {".pb.gw.go"},
	"services/gateway/openapi": {".json"},
}

func main() {
	check := flag.Bool("check", false, "write nothing, exit 1 where something is out of date")
	image := flag.Bool("image", false, "renew "+imagePath)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *check, *image); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check, image bool) error {
	if check && image {
		return errors.New("-check writes nothing; give it or -image")
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	b, err := install(ctx, root)
	if err != nil {
		return err
	}
	format := []string{"format", "-w"}
	if check {
		format = []string{"format", "--diff", "--exit-code"}
	}
	if err := b.run(format...); err != nil {
		return fmt.Errorf("contracts are not formatted; run: go run ./internal/generate: %w", err)
	}
	if err := b.run("lint"); err != nil {
		return fmt.Errorf("contracts break a lint rule: %w", err)
	}
	if image {
		if err := b.run("build", "--exclude-source-info", "-o", imagePath); err != nil {
			return err
		}
	}
	if err := b.run("breaking", "--against", imagePath); err != nil {
		return fmt.Errorf("contracts break what was published in %s; add fields instead of changing them: %w", imagePath, err)
	}
	fresh, err := os.MkdirTemp("", "cairn-generate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := generate(b, fresh); err != nil {
		return err
	}
	changes, err := compare(fresh, root, outputs)
	if err != nil {
		return err
	}
	for _, c := range changes {
		fmt.Println(c)
	}
	switch {
	case len(changes) == 0:
		fmt.Println("everything is up to date")
	case check:
		return fmt.Errorf("%d generated files are out of date; run: go run ./internal/generate", len(changes))
	default:
		return apply(changes, fresh, root)
	}
	return nil
}

// generate makes all outputs below dir, laid out as in the module.
func generate(b *toolbox, dir string) error {
	for _, args := range [][]string{
		{"generate", "-o", dir},
		{"generate", "--template", "buf.gen.gateway.yaml", "--path", "proto/cairn/api", "-o", dir},
		{"generate", "--template", "buf.gen.openapi.yaml", "--path", "proto/cairn/api", "-o", dir},
	} {
		if err := b.run(args...); err != nil {
			return fmt.Errorf("buf %s: %w", strings.Join(args, " "), err)
		}
	}
	raw := filepath.Join(dir, "services/gateway/openapi/cairn.swagger.json")
	text, err := os.ReadFile(raw)
	if err != nil {
		return err
	}
	document, err := openAPI(text)
	if err != nil {
		return fmt.Errorf("OpenAPI document: %w", err)
	}
	if err := os.Remove(raw); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(filepath.Dir(raw), "openapi.json"), document, 0o644)
}

// moduleRoot is the folder of go.work above the current one.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOWORK: %w", err)
	}
	work := strings.TrimSpace(string(out))
	if work == "" || work == "off" {
		return "", errors.New("no go.work above this folder; run from the module")
	}
	return filepath.Dir(work), nil
}
