// Command bench measures an executor over the real bus with a log that is synced to disk, answered by responders with
// trivial logic, and prints a table. It is how the layout was chosen and is kept so that changes can be compared.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"text/tabwriter"
	"time"
)

// options of a measurement.
type options struct {
	partitions int
	noSync     bool
	tcp        bool
	duration   time.Duration
	scale      int
	dir        string
	verbose    bool
	// bare puts an owner without any logic in the executor's place.
	bare bool
}

// row is one line of the table.
type row struct {
	name, result, detail string
}

// scenarios in the order of the table.
var scenarios = []struct {
	name string
	run  func(ctx context.Context, o options) ([]row, error)
}{
	{"chain-1", func(ctx context.Context, o options) ([]row, error) { return chains(ctx, o, 1) }},
	{"chain-256", func(ctx context.Context, o options) ([]row, error) { return chains(ctx, o, 256) }},
	{"fan-100", fan},
	{"small-10000", small},
	{"takeover-10000", takeover},
	{"read-1M", readLarge},
}

func main() {
	if err := benchmark(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func benchmark() error {
	o := options{}
	flag.IntVar(&o.partitions, "partitions", 4, "partitions of the log")
	flag.BoolVar(&o.noSync, "nosync", false, "leave file syncs to the operating system")
	flag.BoolVar(&o.tcp, "tcp", false, "connect over the loopback interface instead of in process")
	flag.DurationVar(&o.duration, "time", 10*time.Second, "how long the chain scenarios run")
	flag.IntVar(&o.scale, "scale", 1, "divide the sizes of the large scenarios by this")
	flag.StringVar(&o.dir, "dir", "", "folder for the bus; a temporary one where empty")
	flag.BoolVar(&o.bare, "bare", false, "chain scenarios with an owner that only counts: what bus, log and responders cost alone")
	flag.BoolVar(&o.verbose, "v", false, "log what the executor says")
	only := flag.String("only", "", "regular expression of scenarios to run")
	profile := flag.String("cpuprofile", "", "write a CPU profile to this file")
	allocations := flag.String("memprofile", "", "write a profile of allocations to this file")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if *allocations != "" {
		f, err := os.Create(*allocations)
		if err != nil {
			return err
		}
		defer func() { _ = pprof.Lookup("allocs").WriteTo(f, 0); _ = f.Close() }()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "scenario\tresult\tdetail")
	for _, s := range scenarios {
		if !match.MatchString(s.name) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
		rows, err := s.run(limited, o)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		for _, r := range rows {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", r.name, r.result, r.detail)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}
