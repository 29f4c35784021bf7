// Command cairn is Cairn's one binary: a subcommand a service, everything in one process with "run" and "dev", and the
// commands that talk to the gateway.
package main

import (
	"os"
)

func main() {
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
