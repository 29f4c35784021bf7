package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/cmd/cairn/client"
)

// app is what every command shares.
type app struct {
	in       io.Reader
	out, err io.Writer
	where    client.Options
	output   string
}

// Forms of output.
const (
	outputText  = "text"
	outputJSON  = "json"
	outputJSONL = "jsonl"
)

// execute runs one command line and returns its exit code.
func execute(args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out, err: errOut}
	a.where.Note = func(text string) { fmt.Fprintln(errOut, text) }
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.Execute()
	if text := errorText(err); text != "" {
		if a.output == outputJSON || a.output == outputJSONL {
			text = errorJSON(err)
		} else {
			text = "cairn: " + text
		}
		fmt.Fprintln(errOut, text)
	}
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "cairn",
		Short: "Runs plans durably: a goal, a plan as data, and a log of everything",
		Long: "Cairn runs plans durably. A run is a goal, a versioned plan and an immutable log of events.\n\n" +
			"Try it:  cairn run examples/order.yaml\nServe:   cairn dev",
		SilenceUsage: true, SilenceErrors: true,
		RunE: group,
		Args: cobra.ArbitraryArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.where = a.where.FromEnvironment()
			switch a.output {
			case outputText, outputJSON, outputJSONL:
				return nil
			}
			return badInputf("-o %s: choose text, json or jsonl", a.output)
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return badInputf("%w; see \"%s --help\"", err, c.CommandPath())
	})
	flags := root.PersistentFlags()
	flags.StringVarP(&a.output, "output", "o", outputText, "text, json, or jsonl (one JSON object a line)")
	flags.StringVar(&a.where.Server, "server", "", "the gateway's address (CAIRN_SERVER; default "+client.DefaultServer+")")
	flags.StringVar(&a.where.Dir, "dir", "", "the kept folder (CAIRN_DIR; default "+client.DefaultDir+")")
	root.AddGroup(&cobra.Group{ID: "local", Title: "In one process:"}, &cobra.Group{ID: "client", Title: "Runs:"},
		&cobra.Group{ID: "service", Title: "Services:"})
	add := func(id string, cs ...*cobra.Command) {
		for _, c := range cs {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	add("local", a.runCommand(), a.devCommand())
	add("client", a.submitCommand(), a.getCommand(), a.listCommand(), a.watchCommand(), a.cancelCommand(), a.answerCommand(),
		a.eventsCommand(), a.whyCommand(), a.planCommand(), a.patchCommand(), a.replayCommand(), a.exportCommand(), a.artifactCommand(), a.toolCommand())
	add("service", a.initCommand(), a.gatewayCommand(), a.plannerCommand(), a.executorCommand(), a.toolrouterCommand(), a.runstoreCommand(), a.demoCommand())
	root.AddCommand(a.versionCommand(), &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp})
	return root
}

// group answers a command that only has subcommands.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	// Cobra's own way to look for suggestions sets this default.
	c.SuggestionsMinimumDistance = max(c.SuggestionsMinimumDistance, 2)
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return badInputf("%s; \"%s --help\" lists the commands", text, c.CommandPath())
}

// args checks the number of arguments and says in the command's own words what is missing.
func args(low, high int) cobra.PositionalArgs {
	return func(c *cobra.Command, given []string) error {
		if len(given) < low {
			return badInputf("an argument is missing: %s", c.UseLine())
		}
		if high >= 0 && len(given) > high {
			return badInputf("unexpected argument %q: %s", given[high], c.UseLine())
		}
		return nil
	}
}

// command is a command line to copy that reaches what this one reaches.
func (a *app) command(words ...string) string {
	line := self()
	for _, w := range words {
		line += " " + quoted(w)
	}
	switch {
	case a.where.Server != "":
		return line + " --server " + quoted(a.where.Server)
	case a.where.Dir != "":
		return line + " --dir " + quoted(a.where.Dir)
	}
	return line
}

// quoted is a word as a shell reads it.
func quoted(w string) string {
	if w != "" && !strings.ContainsFunc(w, func(r rune) bool { return r <= ' ' || strings.ContainsRune("'\"$`\\|&;<>()*?[]#~{}!", r) }) {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// self is how this program was called, for commands that are shown to copy.
func self() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./cmd/cairn"
	}
	return "cairn"
}
