package main

import (
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/examples/order"
	"github.com/cairnrun/cairn/pkg/tool"
)

// demoDelay makes each call of the demo take a moment, so that the steps can be seen to change.
const demoDelay = 250 * time.Millisecond

// demos are the tool services that come with the binary, for examples.
var demos = map[string]func() []*tool.Tool{
	"demo/order": func() []*tool.Tool { return (&order.Shop{Delay: demoDelay}).Tools() },
}

// demoTools makes the named tool services.
func demoTools(names []string) (map[string][]*tool.Tool, error) {
	out := map[string][]*tool.Tool{}
	for _, n := range names {
		make, ok := demos[n]
		if !ok {
			return nil, badInputf("no tool service %q comes with cairn; there is %s. Serve your own beside \"cairn dev\" (docs/tools.md)", n, strings.Join(demoNames(), ", "))
		}
		out[n] = make()
	}
	return out, nil
}

func demoNames() []string {
	var out []string
	for n := range demos {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}
