package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/pkg/run"
)

// version is what "cairn version" says.
type version struct {
	Version string `json:"version"`
	// Commit of the sources, "+dirty" where they had been changed; empty where the binary does not know it.
	Commit string `json:"commit,omitempty"`
	Go     string `json:"go"`
	// Rules is the version of the core's rules, which logs name.
	Rules string `json:"rules_version"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of this binary and of its rules", Args: args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			v := version{Version: "(devel)", Rules: run.RulesVersion}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.fill(info)
			}
			if !a.asJSON() {
				_, err := fmt.Fprintln(a.out, v)
				return err
			}
			text, err := json.Marshal(v)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.out, "%s\n", text)
			return err
		},
	}
}

func (v *version) fill(info *debug.BuildInfo) {
	v.Go = info.GoVersion
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Commit = s.Value + v.Commit
		case s.Key == "vcs.modified" && s.Value == "true":
			v.Commit += "+dirty"
		}
	}
}

func (v version) String() string {
	text := "cairn " + v.Version
	if v.Commit != "" {
		text += ", commit " + v.Commit
	}
	return text + ", " + v.Go + ", rules version " + v.Rules
}
