package main

import (
	"fmt"
	"io"
	"time"

	"github.com/cairnrun/cairn/cmd/cairn/render"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// screenFor chooses how a run is shown: drawn in place on a terminal, told line by line elsewhere, as events with
// -o jsonl, and not at all with -o json, which prints the outcome.
func (a *app) screenFor() func(*render.View) screen {
	return func(v *render.View) screen {
		switch {
		case a.output == outputJSONL:
			return jsonScreen{a}
		case a.output == outputJSON:
			return noScreen{}
		case isTerminal(a.out):
			return &liveScreen{view: v, out: a.out, live: render.NewLive(a.out)}
		}
		return &plainScreen{view: v, out: a.out}
	}
}

type noScreen struct{}

func (noScreen) event(*runv1.Event) error { return nil }
func (noScreen) tick() error              { return nil }
func (noScreen) close()                   {}

type jsonScreen struct{ app *app }

func (s jsonScreen) event(e *runv1.Event) error { return s.app.printLine(e) }
func (jsonScreen) tick() error                  { return nil }
func (jsonScreen) close()                       {}

type plainScreen struct {
	view  *render.View
	out   io.Writer
	begun bool
}

func (s *plainScreen) event(e *runv1.Event) error {
	if !s.begun {
		s.begun = true
		if _, err := fmt.Fprintf(s.out, "run %s: %s\n", e.GetRunId(), render.Goal(s.view.State())); err != nil {
			return err
		}
	}
	for _, line := range s.view.PlainLines(e) {
		if _, err := fmt.Fprintln(s.out, line); err != nil {
			return err
		}
	}
	return nil
}

func (s *plainScreen) tick() error { return nil }
func (s *plainScreen) close()      {}

type liveScreen struct {
	view  *render.View
	out   io.Writer
	live  *render.Live
	frame int
}

func (s *liveScreen) event(*runv1.Event) error { return nil }

func (s *liveScreen) tick() error {
	s.frame++
	o := drawing(s.out)
	// The last column stays free: some terminals wrap when it is written.
	if o.Width > 0 {
		o.Width--
	}
	_, o.Height = terminalSize(s.out)
	o.Now, o.Frame = time.Now(), s.frame
	return s.live.Draw(s.view.Frame(o), o.Width)
}

func (s *liveScreen) close() { s.live.Close() }
