package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/services/executor"
	"github.com/cairnrun/cairn/services/gateway"
	"github.com/cairnrun/cairn/services/planner"
	"github.com/cairnrun/cairn/services/runstore"
	"github.com/cairnrun/cairn/services/toolrouter"
)

func (a *app) executorCommand() *cobra.Command {
	s := &service{name: "executor"}
	var member string
	c := &cobra.Command{
		Use: "executor", Short: "Run one executor: it owns partitions and decides what runs do next", Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.serve(c.Context(), s, func(ctx context.Context, log *slog.Logger, h *telemetry.Health) error {
				return executor.Run(ctx, executor.Config{Bus: s.bus(), Logger: log, Health: h, Name: member})
			})
		},
	}
	s.flags(c)
	c.Flags().StringVar(&member, "name", "", "name of this member, unique in the cluster; made up where empty")
	return c
}

func (a *app) plannerCommand() *cobra.Command {
	s := &service{name: "planner"}
	var templates string
	c := &cobra.Command{
		Use: "planner", Short: "Run one planner: it turns goals into plans and failures into patches", Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.serve(c.Context(), s, func(ctx context.Context, log *slog.Logger, h *telemetry.Health) error {
				return planner.Run(ctx, planner.Config{Bus: s.bus(), Logger: log, Health: h, Templates: templates})
			})
		},
	}
	s.flags(c)
	c.Flags().StringVar(&templates, "templates", "", "YAML file of goal patterns and replan rules (docs/planner.md)")
	return c
}

func (a *app) toolrouterCommand() *cobra.Command {
	s := &service{name: "toolrouter"}
	var root string
	c := &cobra.Command{
		Use: "toolrouter", Short: "Run one tool router: it checks actions and hands them to tools", Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.serve(c.Context(), s, func(ctx context.Context, log *slog.Logger, h *telemetry.Health) error {
				return toolrouter.Run(ctx, toolrouter.Config{Bus: s.bus(), Logger: log, Health: h, Root: root})
			})
		},
	}
	s.flags(c)
	c.Flags().StringVar(&root, "root", "", "folder that the built-in file tools are confined to; empty: they are not offered")
	return c
}

func (a *app) gatewayCommand() *cobra.Command {
	s := &service{name: "gateway"}
	var config gateway.Config
	c := &cobra.Command{
		Use: "gateway", Short: "Run one gateway: gRPC, HTTP/JSON and server-sent events", Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.serve(c.Context(), s, func(ctx context.Context, log *slog.Logger, h *telemetry.Health) error {
				config.Bus, config.Logger, config.Health = s.bus(), log, h
				config.Addr = func(addr string) { log.Info("gateway listens", "address", addr) }
				return gateway.Run(ctx, config)
			})
		},
	}
	s.flags(c)
	f := c.Flags()
	f.StringVar(&config.Listen, "listen", "127.0.0.1:7070", "address of gRPC and HTTP, both on one port")
	f.StringVar(&config.RunStore, "runstore", "127.0.0.1:7071", "address of the run store")
	f.StringVar(&config.TokensFile, "tokens", "", "file of bearer tokens, one \"token tenant\" a line")
	f.BoolVar(&config.Insecure, "insecure", false, "take requests without tokens on an address that others can reach")
	return c
}

func (a *app) runstoreCommand() *cobra.Command {
	s := &service{name: "runstore"}
	var config runstore.Config
	var rebuild bool
	c := &cobra.Command{
		Use: "runstore", Short: "Run the run store: queries, live views, replay and the event feed", Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.serve(c.Context(), s, func(ctx context.Context, log *slog.Logger, h *telemetry.Health) error {
				config.Bus, config.Logger, config.Health = s.bus(), log, h
				if rebuild {
					if err := runstore.Rebuild(ctx, config); err != nil {
						return err
					}
					fmt.Fprintf(a.out, "%s is rebuilt from the log\n", config.Database)
					return nil
				}
				config.Addr = func(addr string) { log.Info("run store listens", "address", addr) }
				return runstore.Run(ctx, config)
			})
		},
	}
	s.flags(c)
	f := c.Flags()
	f.StringVar(&config.Database, "db", "runs.db", "path of the database file")
	f.StringVar(&config.Listen, "listen", "127.0.0.1:7071", "address of its queries")
	f.BoolVar(&config.DisableFeed, "no-feed", false, "publish no events on cairn.event.>")
	f.BoolVar(&rebuild, "rebuild", false, "make the database anew from the log, and end")
	return c
}
