package dev

import (
	"context"
	"sync"
)

// group is services that are stopped together.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// failed is told when a service ends before end was called.
	failed func(name string, err error)
}

func newGroup(failed func(string, error)) *group {
	g := &group{failed: failed}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

func (g *group) run(name string, fn func(context.Context) error) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		err := fn(g.ctx)
		if g.ctx.Err() == nil {
			g.failed(name, err)
		}
	}()
}

// end stops them and waits.
func (g *group) end() {
	g.cancel()
	g.wg.Wait()
}
