package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/runfile"
	"github.com/cairnrun/cairn/internal/dev"
	"github.com/cairnrun/cairn/pkg/bus"
	"github.com/cairnrun/cairn/pkg/telemetry"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	"github.com/cairnrun/cairn/services/gateway"
	"github.com/cairnrun/cairn/services/planner"
)

func (a *app) runCommand() *cobra.Command {
	var o runfile.Overrides
	var templates string
	var tools []string
	c := &cobra.Command{
		Use:   "run FILE|GOAL",
		Short: "Run a file, a plan or a goal in one process and watch it",
		Long: "Starts everything in this process (embedded NATS on a kept folder, all services, the tools that the file names),\n" +
			"submits the run, shows it until it ends, and stops. Everything stays in the folder: \"cairn events\", \"why\" and\n" +
			"\"replay\" open it afterwards.\n\n" +
			"FILE is a run file (goal or plan, input, labels, request_id, limits, mode, permissions, allowed_tools, templates, tools;\n" +
			"docs/runfile.md), or a plan document, as YAML or JSON. Ctrl-C asks for cancel; a second one leaves at once,\n" +
			"and the run goes on when the folder is served again.",
		Example: "  cairn run examples/order.yaml\n  cairn run examples/order.yaml --var stock_256=3\n  cairn run examples/order.yaml -o json",
		Args:    args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := runfile.Load(args[0])
			if err != nil {
				return badInput(err)
			}
			if err := o.Apply(f); err != nil {
				return badInput(err)
			}
			if templates != "" {
				f.Templates, f.InlineTemplates = templates, nil
			}
			f.Tools = append(f.Tools, tools...)
			return a.run(c.Context(), args[0], f)
		},
	}
	overrideFlags(c, &o)
	c.Flags().StringVar(&templates, "templates", "", "templates file of the planner, in place of the run file's")
	c.Flags().StringSliceVar(&tools, "tools", nil, "further tool services to start: "+fmt.Sprint(demoNames()))
	return c
}

func overrideFlags(c *cobra.Command, o *runfile.Overrides) {
	f := c.Flags()
	f.StringArrayVar(&o.Vars, "var", nil, "key=value: replace one key of the input; a value that is no JSON is text")
	f.StringVar(&o.Input, "input", "", "the whole input, as JSON or YAML text, or @file")
	f.StringArrayVarP(&o.Labels, "label", "l", nil, "key=value: add a label")
	f.StringVar(&o.RequestID, "request-id", "", "the same id with the same content gives the same run")
}

func (a *app) run(ctx context.Context, name string, f *runfile.File) error {
	config, err := a.runConfig(f)
	if err != nil {
		return err
	}
	if f.InlineTemplates != nil {
		if config.Templates, err = temporary(f.InlineTemplates); err != nil {
			return err
		}
		defer func() { _ = os.Remove(config.Templates) }()
	}
	// Commands that are shown to copy name the folder: without it, a server that runs on this machine would be asked.
	a.where.Server, a.where.Dir = "", config.Dir
	interrupts := onInterrupt()
	defer interrupts.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a.output == outputText {
		fmt.Fprintf(a.err, "starting in folder %s\n", config.Dir)
	}
	closeObserver, err := observe(ctx, "run", "", config.Logger, nil)
	if err != nil {
		return err
	}
	defer closeObserver()
	d, err := startInterruptible(ctx, config, interrupts)
	if err != nil {
		return startError(err)
	}
	defer d.Close()
	cl, err := client.Connect(ctx, client.Options{Server: d.Gateway()})
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := a.checkPlan(ctx, cl, name, f.Spec); err != nil {
		return err
	}
	resp, err := cl.Runs.SubmitRun(ctx, &apiv1.SubmitRunRequest{RequestId: f.RequestID, Spec: f.Spec})
	if err != nil {
		return err
	}
	return a.followCancelling(ctx, cl, resp, interrupts, d.Failed(), d.Err)
}

// startError sorts out what kept the assembly from starting.
func startError(err error) error {
	var e *exit
	if errors.As(err, &e) {
		return err
	}
	if badConfig(err) {
		return badInput(err)
	}
	return unavailable(err)
}

// badConfig says that an error is of what was asked for: templates that cannot be read, an address without tokens.
func badConfig(err error) bool {
	var p *planner.ConfigError
	var g *gateway.ConfigError
	return errors.As(err, &p) || errors.As(err, &g) || errors.Is(err, bus.ErrPartitions)
}

// runConfig is the assembly that a run file asks for.
func (a *app) runConfig(f *runfile.File) (dev.Config, error) {
	tools, err := demoTools(f.Tools)
	if err != nil {
		return dev.Config{}, err
	}
	c := dev.Config{Dir: a.dir(), Templates: f.Templates, Tools: tools}
	c.Logger = slog.New(telemetry.LogHandler{Handler: slog.NewTextHandler(&lazyFile{path: filepath.Join(c.Dir, "cairn.log")}, nil)})
	return c, nil
}

// temporary writes the templates that stand in the run file where the planner reads them from.
func temporary(templates []byte) (string, error) {
	file, err := os.CreateTemp("", "cairn-templates-*.json")
	if err != nil {
		return "", unavailable(fmt.Errorf("write the templates of the run file: %w", err))
	}
	_, err = file.Write(templates)
	if err := errors.Join(err, file.Close()); err != nil {
		return "", unavailable(fmt.Errorf("write the templates of the run file: %w", err))
	}
	return file.Name(), nil
}

func (a *app) dir() string {
	if a.where.Dir == "" {
		return client.DefaultDir
	}
	return a.where.Dir
}

// followCancelling shows a run until it ends. The first interrupt asks for cancel, the second leaves.
func (a *app) followCancelling(ctx context.Context, cl *client.Client, resp *apiv1.SubmitRunResponse, in *interrupts, failed <-chan struct{}, why func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	listening := make(chan struct{})
	defer func() {
		cancel(nil)
		<-listening
	}()
	go func() {
		defer close(listening)
		select {
		case <-in.first:
			fmt.Fprintln(a.err, "\ncancel asked for; once more to leave at once")
			_, err := cl.Runs.CancelRun(ctx, &apiv1.CancelRunRequest{RunId: resp.GetRunId(), Reason: "interrupted", By: "cairn run"})
			// The run may have ended before the answer came: then nobody waits for it any more.
			if err != nil && ctx.Err() == nil {
				fmt.Fprintln(a.err, "cairn: cancel: "+errorText(err))
			}
		case <-failed:
			cancel(why())
		case <-ctx.Done():
			return
		}
		select {
		case <-in.second:
			cancel(&exit{exitInterrupted, fmt.Errorf("left run %s before it ended; it goes on when the folder is served again: %s dev --dir %s", resp.GetRunId(), self(), quoted(a.dir()))})
		case <-failed:
			cancel(why())
		case <-ctx.Done():
		}
	}()
	view, err := a.follow(ctx, cl, resp.GetRunId(), 0, resp.GetPosition(), a.screenFor())
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	if err := a.printOutcome(view); err != nil {
		return err
	}
	if a.output == outputText {
		a.lookCloser(resp)
	}
	return ended(view.Ended())
}

func (a *app) lookCloser(resp *apiv1.SubmitRunResponse) {
	id := resp.GetRunId()
	fmt.Fprintf(a.out, "\nlook closer:\n  %s\n  %s\n  %s\n", a.command("events", id), a.command("why", id), a.command("replay", id, "--verify"))
}
