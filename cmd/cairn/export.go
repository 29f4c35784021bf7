package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/pkg/replay"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func (a *app) exportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export RUN",
		Short: "Print a run's log whole, for replay elsewhere",
		Long: "Prints one JSON object a commit: its events for people, and the stored bytes that hashes are over.\n" +
			"\"cairn replay FILE\" reads it anywhere, without a server.",
		Example: "  cairn export last > run.jsonl && cairn replay run.jsonl --verify",
		Args:    args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := client.Read(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			id, err := cl.RunID(c.Context(), args[0])
			if err != nil {
				return err
			}
			stream, err := cl.Query.ExportRun(c.Context(), &apiv1.ExportRunRequest{RunId: id})
			if err != nil {
				return err
			}
			for {
				m, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				if err := replay.Write(a.out, m); err != nil {
					return err
				}
			}
		},
	}
}
