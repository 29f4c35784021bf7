// A tool service in one file: two typed functions, served until interrupted.
//
//	go run ./examples/tools/go -nats nats://127.0.0.1:4222
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"github.com/cairnrun/cairn/pkg/tool"
)

type stockInput struct {
	SKU string `json:"sku" jsonschema:"Article number"`
}

type stockOutput struct {
	Left int `json:"left"`
}

func checkStock(ctx context.Context, in stockInput) (stockOutput, error) {
	left, ok := map[string]int{"phone-128": 3, "phone-256": 0}[in.SKU]
	if !ok {
		// A plan fault: another plan may ask for another article.
		return stockOutput{}, tool.Errorf(tool.CodeResourceMissing, "no article %q", in.SKU)
	}
	return stockOutput{Left: left}, nil
}

type paymentInput struct {
	Order string `json:"order"`
	Cents int64  `json:"cents"`
}

type paymentOutput struct {
	Receipt string `json:"receipt"`
}

// pay is not idempotent, so it is started at most once for an action; a bank that knows idempotency keys makes it safe to
// repeat.
func pay(ctx context.Context, in paymentInput) (paymentOutput, error) {
	action := tool.Action(ctx)
	action.Progress(ctx, 0.5, "asking the bank")
	return paymentOutput{Receipt: in.Order + "/" + action.IdempotencyKey}, nil
}

func serve(ctx context.Context, c tool.Config) error {
	return tool.Serve(ctx, c,
		tool.New("stock.check", checkStock, tool.Version("1.0.0"), tool.Description("How many of an article are left"), tool.Idempotent()),
		tool.New("payment.pay", pay, tool.Version("1.0.0"), tool.Description("Pays an order"), tool.Permission("payment"), tool.Risk("medium")),
	)
}

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "where NATS is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, tool.Config{URL: *url}); err != nil {
		log.Fatal(err)
	}
}
