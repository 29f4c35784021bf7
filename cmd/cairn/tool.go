package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	apiv1 "github.com/cairnrun/cairn/proto/cairn/api/v1"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

func (a *app) toolCommand() *cobra.Command {
	c := &cobra.Command{Use: "tool", Short: "Show and register tools", RunE: group, Args: cobra.ArbitraryArgs}
	c.AddCommand(a.toolListCommand(), a.toolGetCommand(), a.toolRegisterCommand())
	return c
}

func (a *app) toolListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tools of the registry", Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := client.Read(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			all, req := &apiv1.ListToolsResponse{}, &apiv1.ListToolsRequest{}
			for {
				resp, err := cl.Tools.ListTools(c.Context(), req)
				if err != nil {
					return err
				}
				all.Tools = append(all.Tools, resp.GetTools()...)
				if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
					return a.printTools(all)
				}
			}
		},
	}
}

func (a *app) printTools(all *apiv1.ListToolsResponse) error {
	switch a.output {
	case outputJSON:
		return a.printMessage(all)
	case outputJSONL:
		for _, t := range all.GetTools() {
			if err := a.printLine(t); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all.GetTools()) == 0 {
		fmt.Fprintln(a.err, "no tools")
		return nil
	}
	var rows [][]string
	for _, t := range all.GetTools() {
		repeat := "at most once"
		if t.GetIdempotent() {
			repeat = "repeatable"
		}
		rows = append(rows, []string{t.GetName(), t.GetVersion(), repeat, render.Risk(t.GetRisk()), t.GetPermission(), render.Line(t.GetDescription())})
	}
	a.table([]string{"TOOL", "VERSION", "CALLED", "RISK", "PERMISSION", "DESCRIPTION"}, rows)
	return nil
}

func (a *app) toolGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a tool's definition", Args: args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := client.Read(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			resp, err := cl.Tools.GetTool(c.Context(), &apiv1.GetToolRequest{Name: args[0]})
			if err != nil {
				return err
			}
			return a.printMessage(resp.GetTool())
		},
	}
}

func (a *app) toolRegisterCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "register FILE",
		Short: "Put a tool's definition into the registry",
		Long:  "Registers a definition as YAML or JSON (docs/tools.md); - reads standard input. Tools made with the Go SDK register themselves.",
		Args:  args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := a.readDocument(args[0])
			if err != nil {
				return err
			}
			def := &planv1.ToolDefinition{}
			if err := exactjson.Unmarshal([]byte(doc.GetText()), def); err != nil {
				return badInputf("%s: %w", args[0], err)
			}
			cl, err := client.Connect(c.Context(), a.where)
			if err != nil {
				return err
			}
			defer cl.Close()
			resp, err := cl.Tools.RegisterTool(c.Context(), &apiv1.RegisterToolRequest{Tool: def})
			if err != nil {
				return err
			}
			if a.asJSON() {
				return a.printMessage(resp)
			}
			word := "updated"
			if resp.GetCreated() {
				word = "registered"
			}
			fmt.Fprintf(a.out, "%s %s %s\n", word, resp.GetTool().GetName(), resp.GetTool().GetVersion())
			return nil
		},
	}
}
