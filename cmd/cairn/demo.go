package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/pkg/telemetry"
	"github.com/cairnrun/cairn/pkg/tool"
)

func (a *app) demoCommand() *cobra.Command {
	s := &service{name: "demo"}
	c := &cobra.Command{
		Use:   "demo NAME",
		Short: "Serve the tools of an example, as a tool service of your own would",
		Long:  "Serves the tools that examples call: " + fmt.Sprint(demoNames()) + ". With \"cairn run\" and \"cairn dev\" a run file or --tools names them instead.",
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			tools, err := demoTools(args)
			if err != nil {
				return err
			}
			return a.serve(c.Context(), s, func(ctx context.Context, log *slog.Logger, h *telemetry.Health) error {
				b := s.bus()
				return tool.Serve(ctx, tool.Config{
					URL: b.URL, Name: b.Name, Options: b.Options, Logger: log, OnReady: func(err error) { h.Set(s.name, err) },
				}, tools[args[0]]...)
			})
		},
	}
	s.flags(c)
	return c
}
