package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/pkg/bus"
)

// initTimeout bounds the creation of all streams.
const initTimeout = 60 * time.Second

func (a *app) initCommand() *cobra.Command {
	s := &service{name: "init"}
	var l bus.Layout
	c := &cobra.Command{
		Use:   "init",
		Short: "Create the streams on a NATS server",
		Long: "Creates the streams and buckets that are missing and leaves those that are there. The number of partitions is fixed with the\n" +
			"log: enough for the executors that one will ever want. Services never create streams; they wait for them.",
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if l.Replicas != 1 && l.Replicas != 3 && l.Replicas != 5 {
				return badInputf("--replicas %d: choose 1, or 3 or 5 on a cluster", l.Replicas)
			}
			ctx, cancel := context.WithTimeout(c.Context(), initTimeout)
			defer cancel()
			return a.init(ctx, s, l)
		},
	}
	c.Flags().StringVar(&s.nats, "nats", env("CAIRN_NATS", defaultNATS), "URL of NATS (CAIRN_NATS)")
	c.Flags().StringVar(&s.creds, "nats-creds", "", "credentials file for NATS")
	c.Flags().IntVar(&l.Partitions, "partitions", 4, "partitions of the log, fixed once created")
	c.Flags().IntVar(&l.Replicas, "replicas", 1, "replicas of every stream")
	return c
}

func (a *app) init(ctx context.Context, s *service, l bus.Layout) error {
	config := s.bus()
	// Services wait for NATS; a command that a person calls says at once that it is not there.
	config.Options = append(config.Options, nats.RetryOnFailedConnect(false))
	nc, js, err := bus.Connect(config)
	if err != nil {
		return unavailable(fmt.Errorf("no NATS server answers at %s: %w; start one (deploy/ has a configuration), or name another with --nats", s.nats, err))
	}
	defer nc.Close()
	if _, err := js.AccountInfo(ctx); err != nil {
		return unavailable(fmt.Errorf("the NATS server at %s has no JetStream: %w; start it with JetStream and a store folder", s.nats, err))
	}
	if err := bus.Init(ctx, js, l); errors.Is(err, bus.ErrPartitions) {
		return badInput(err)
	} else if err != nil {
		return unavailable(err)
	}
	n, err := bus.Partitions(ctx, js)
	if err != nil {
		return unavailable(err)
	}
	fmt.Fprintf(a.out, "streams are ready at %s: %d partitions\n", s.nats, n)
	return nil
}

func natsCredentials(file string) []nats.Option {
	if file == "" {
		return nil
	}
	return []nats.Option{nats.UserCredentials(file)}
}
