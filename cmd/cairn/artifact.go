package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
)

func (a *app) artifactCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "artifact SHA256",
		Short:   "Print a payload that is too large for the log, as a large result or answer",
		Long:    "Prints the bytes of an artifact as they are. Its name is the sha256 of its bytes, as \"cairn get\" and results show it.",
		Example: "  cairn artifact 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 > answer.json",
		Args:    args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := client.Read(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			stream, err := cl.Runs.GetArtifact(c.Context(), &apiv1.GetArtifactRequest{Sha256: args[0]})
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
				if _, err := a.out.Write(m.GetChunk()); err != nil {
					return err
				}
			}
		},
	}
}
