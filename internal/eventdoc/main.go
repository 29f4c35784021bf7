// Command eventdoc writes docs/events.md from the comments of the contracts. Run it from the root of the module:
//
//	go run ./internal/eventdoc
//
// A test of this package fails while the file is not what this command would write.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	protoDir = "proto"
	target   = "docs/events.md"
)

func main() {
	doc, err := Document(protoDir)
	if err == nil {
		err = os.WriteFile(filepath.FromSlash(target), doc, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "eventdoc:", err)
		os.Exit(1)
	}
}
