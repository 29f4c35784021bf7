// Package order is the tool service of examples/order.yaml: a small shop whose tools parse a wish in Chinese or English,
// look at stock and delivery, compute a price, create an order, take a payment and confirm.
package order

import (
	"context"
	"sync"
	"time"

	"github.com/cairnrun/cairn/pkg/tool"
)

// Shop does the orders. Its zero value works at once.
type Shop struct {
	// Delay is what every call takes, as if the shop were far away; looking at the shelf takes twice as long.
	Delay time.Duration

	mu      sync.Mutex
	calls   map[string]int
	charges []Charge
}

// Charge is one payment that was taken.
type Charge struct {
	OrderID string
	// Amount in CNY, two decimals.
	Amount string
}

// Charges are the payments taken so far.
func (s *Shop) Charges() []Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Charge(nil), s.charges...)
}

// Calls says how often each tool was called.
func (s *Shop) Calls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for k, v := range s.calls {
		out[k] = v
	}
	return out
}

// Tools are the shop's tools. payment.charge takes money each time it is called, so it is not marked idempotent and
// Cairn starts it at most once.
func (s *Shop) Tools() []*tool.Tool {
	return []*tool.Tool{
		tool.New("order.parse", called(s, parse), tool.Version("1.0.0"), tool.Idempotent(),
			tool.Description("Reads a wish in Chinese or English: model, storage, colour, quantity and city")),
		tool.New("stock.check", called(s, s.checkStock), tool.Version("1.0.0"), tool.Idempotent(),
			tool.Description("How many of a model with a storage size are on the shelf")),
		tool.New("delivery.quote", called(s, quote), tool.Version("1.0.0"), tool.Idempotent(),
			tool.Description("Days and fee of a delivery to a city")),
		tool.New("price.compute", called(s, compute), tool.Version("1.0.0"), tool.Idempotent(),
			tool.Description("The price of an order with its delivery, in CNY")),
		tool.New("order.create", called(s, create), tool.Version("1.0.0"), tool.Idempotent(),
			tool.Description("Creates an order; a repeat with the same idempotency key gives the same order")),
		tool.New("payment.charge", called(s, s.charge), tool.Version("1.0.0"), tool.Risk("medium"),
			tool.Description("Takes the payment of an order; every call takes it again")),
		tool.New("order.confirm", called(s, confirm), tool.Version("1.0.0"), tool.Idempotent(),
			tool.Description("The confirmation for the customer, in the language of the wish")),
	}
}

// called counts a call and lets it take its time.
func called[In, Out any](s *Shop, fn func(context.Context, In) (Out, error)) func(context.Context, In) (Out, error) {
	return func(ctx context.Context, in In) (Out, error) {
		s.mu.Lock()
		if s.calls == nil {
			s.calls = map[string]int{}
		}
		s.calls[tool.Action(ctx).Tool]++
		s.mu.Unlock()
		if err := s.wait(ctx); err != nil {
			var none Out
			return none, err
		}
		return fn(ctx, in)
	}
}

func (s *Shop) wait(ctx context.Context) error {
	select {
	case <-time.After(s.Delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
