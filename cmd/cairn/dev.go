package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/internal/dev"
)

func (a *app) devCommand() *cobra.Command {
	var config dev.Config
	var tools []string
	var ops, level string
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process, for development",
		Long:  "Runs NATS on the kept folder and every service in this process, prints the addresses, and serves until SIGTERM or Ctrl-C.",
		Example: "  cairn dev\n  cairn dev --templates examples/order-templates.yaml --tools demo/order\n" +
			"  cairn submit \"Order 1 iPhone 15 Pro 256G black, ship to Shanghai\" --wait",
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if config.Tools, err = demoTools(tools); err != nil {
				return err
			}
			if config.Templates != "" {
				if _, err := os.Stat(config.Templates); err != nil {
					return badInputf("no templates file %s", config.Templates)
				}
			}
			if config.Logger, err = a.logger(level); err != nil {
				return err
			}
			config.Dir = a.dir()
			return a.dev(c.Context(), config, ops)
		},
	}
	f := c.Flags()
	f.StringVar(&config.NATS, "nats-listen", "127.0.0.1:4222", "address for NATS clients, as tool services are")
	f.StringVar(&config.Gateway, "listen", client.DefaultServer, "address of the gateway: gRPC and HTTP")
	f.StringVar(&config.RunStore, "runstore-listen", "127.0.0.1:0", "address of the run store; port 0 picks one")
	f.StringVar(&config.Tokens, "tokens", "", "file of bearer tokens, one \"token tenant\" a line")
	f.BoolVar(&config.Insecure, "insecure", false, "take requests without tokens on an address that others can reach")
	f.IntVar(&config.Partitions, "partitions", 0, "partitions of a new log (default 4)")
	f.StringVar(&config.Templates, "templates", "", "YAML file of goal patterns and replan rules (docs/planner.md)")
	f.StringVar(&config.Root, "root", "", "folder that the built-in file tools are confined to; empty: they are not offered")
	f.StringSliceVar(&tools, "tools", nil, "tool services of examples to start: "+fmt.Sprint(demoNames()))
	f.StringVar(&ops, "ops", "", "address of /livez, /readyz and /metrics, as :9090; empty: none")
	f.StringVar(&level, "log-level", "warn", "debug, info, warn or error; logs go to standard error")
	return c
}

func (a *app) dev(ctx context.Context, config dev.Config, ops string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	d, err := dev.Start(ctx, config)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return startError(err)
	}
	defer d.Close()
	closeObserver, err := observe(ctx, "dev", ops, config.Logger, d.Health())
	if err != nil {
		return err
	}
	defer closeObserver()
	fmt.Fprintf(a.out, "gateway   %s  (gRPC, http://%s/v1/runs)\nnats      %s\nfolder    %s\n", d.Gateway(), d.Gateway(), d.NATS(), config.Dir)
	if ops != "" {
		fmt.Fprintf(a.out, "ops       %s  (/livez /readyz /metrics)\n", ops)
	}
	fmt.Fprintln(a.out, "ready; Ctrl-C stops")
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.err, "stopping")
		return nil
	case <-d.Failed():
		return unavailable(d.Err())
	}
}
