package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
	"github.com/cairnrun/cairn/cmd/cairn/render"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

func (a *app) eventsCommand() *cobra.Command {
	var after int64
	c := &cobra.Command{
		Use:   "events RUN",
		Short: "Show every event of a run",
		Long: "Shows every event of a run's log, an event a line: revision, time (UTC), whether it was recorded (R) or decided\n" +
			"(D), what it is. -o jsonl prints the events whole. RUN is an id, the beginning of one, or \"last\".",
		Args: args(1, 1),
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
			width, _ := terminalSize(a.out)
			return eachEvent(c.Context(), cl, id, after, func(e *runv1.Event) (bool, error) {
				if a.asJSON() {
					return true, a.printLine(e)
				}
				line := eventLine(e)
				if width > 0 {
					line = render.Cut(line, width)
				}
				_, err := fmt.Fprintln(a.out, line)
				return true, err
			})
		},
	}
	c.Flags().Int64Var(&after, "after", 0, "only events after this revision")
	return c
}

func eventLine(e *runv1.Event) string {
	kind := "R"
	if e.GetKind() == runv1.EventKind_EVENT_KIND_DECIDED {
		kind = "D"
	}
	return fmt.Sprintf("%5d  %s  %s  %-20s  %s", e.GetRevision(), clockMillis(e.GetTime()), kind, render.EventName(e), render.EventText(e))
}
