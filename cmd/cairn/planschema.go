package main

import (
	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/pkg/plan"
)

func (a *app) planSchemaCommand() *cobra.Command {
	var patch bool
	c := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of plan documents",
		Args:  args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			schema := plan.Schema()
			if patch {
				schema = plan.PatchSchema()
			}
			_, err := a.out.Write(schema)
			return err
		},
	}
	c.Flags().BoolVar(&patch, "patch", false, "that of patch documents")
	return c
}
