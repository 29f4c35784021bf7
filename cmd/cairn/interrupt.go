package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cairnrun/cairn/internal/dev"
)

// interrupts are the first and the second Ctrl-C (or SIGTERM).
type interrupts struct {
	first, second chan struct{}
	signals       chan os.Signal
	done          chan struct{}
	once          sync.Once
}

func onInterrupt() *interrupts {
	in := &interrupts{first: make(chan struct{}), second: make(chan struct{}), signals: make(chan os.Signal, 2), done: make(chan struct{})}
	signal.Notify(in.signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for _, c := range []chan struct{}{in.first, in.second} {
			select {
			case <-in.signals:
				close(c)
			case <-in.done:
				return
			}
		}
	}()
	return in
}

func (in *interrupts) stop() {
	in.once.Do(func() {
		signal.Stop(in.signals)
		close(in.done)
	})
}

// startInterruptible starts the assembly; an interrupt meanwhile ends it, since nothing was submitted yet.
func startInterruptible(ctx context.Context, c dev.Config, in *interrupts) (*dev.Dev, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-in.first:
			cancel()
		case <-ctx.Done():
		}
	}()
	d, err := dev.Start(ctx, c)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil, &exit{exitInterrupted, errors.New("interrupted before the run was submitted")}
	}
	return d, err
}
