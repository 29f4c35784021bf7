package order

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/cairnrun/cairn/pkg/tool"
)

// Shelf asks for one size; Shelf.Stock is what the shop has by size, given by the run so that every variant of the
// example can be shown.
type Shelf struct {
	Model   string         `json:"model"`
	Storage string         `json:"storage"`
	Stock   map[string]int `json:"stock"`
}

// Left is how many there are.
type Left struct {
	Model   string `json:"model"`
	Storage string `json:"storage"`
	Stock   int    `json:"stock"`
}

func (s *Shop) checkStock(ctx context.Context, in Shelf) (Left, error) {
	if err := s.wait(ctx); err != nil {
		return Left{}, err
	}
	return Left{Model: in.Model, Storage: in.Storage, Stock: in.Stock[in.Storage]}, nil
}

// Place is where a delivery goes.
type Place struct {
	City string `json:"city"`
}

// Delivery is what it takes.
type Delivery struct {
	Days int         `json:"days"`
	Fee  json.Number `json:"fee"`
}

func quote(_ context.Context, in Place) (Delivery, error) {
	for _, near := range []string{"上海", "Shanghai"} {
		if strings.HasPrefix(in.City, near) {
			return Delivery{Days: 1, Fee: "12.00"}, nil
		}
	}
	return Delivery{Days: 3, Fee: "25.00"}, nil
}

// Item is what is priced.
type Item struct {
	Model    string      `json:"model"`
	Storage  string      `json:"storage"`
	Quantity int         `json:"quantity"`
	Fee      json.Number `json:"fee"`
}

// Price of an order.
type Price struct {
	Unit     json.Number `json:"unit"`
	Total    json.Number `json:"total"`
	Currency string      `json:"currency"`
}

var prices = map[string]string{
	"iPhone 15 128G": "5999.00", "iPhone 15 256G": "6999.00", "iPhone 15 512G": "8999.00",
	"iPhone 15 Pro 128G": "7999.00", "iPhone 15 Pro 256G": "8999.00", "iPhone 15 Pro 512G": "10999.00",
}

func compute(_ context.Context, in Item) (Price, error) {
	unit, ok := prices[in.Model+" "+in.Storage]
	if !ok {
		return Price{}, tool.Errorf("no_price", "the shop has no price for %s %s", in.Model, in.Storage)
	}
	total, ok := new(big.Rat).SetString(unit)
	fee, feeOK := new(big.Rat).SetString(in.Fee.String())
	if !ok || !feeOK {
		return Price{}, tool.Errorf("no_price", "fee %s is no amount", in.Fee)
	}
	total.Mul(total, big.NewRat(int64(in.Quantity), 1)).Add(total, fee)
	return Price{Unit: json.Number(unit), Total: json.Number(total.FloatString(2)), Currency: "CNY"}, nil
}

// Order is what is bought.
type Order struct {
	Model    string      `json:"model"`
	Storage  string      `json:"storage"`
	Colour   string      `json:"colour"`
	Quantity int         `json:"quantity"`
	City     string      `json:"city"`
	Total    json.Number `json:"total"`
}

// Created names a created order.
type Created struct {
	OrderID string `json:"order_id"`
}

func create(ctx context.Context, _ Order) (Created, error) {
	key := tool.Action(ctx).IdempotencyKey
	if len(key) < 8 {
		return Created{}, tool.Errorf("no_key", "an order needs an idempotency key")
	}
	return Created{OrderID: "A-" + key[:8]}, nil
}

// Payment is what is charged.
type Payment struct {
	OrderID string      `json:"order_id"`
	Amount  json.Number `json:"amount"`
}

// Receipt of a payment.
type Receipt struct {
	Receipt string      `json:"receipt"`
	Paid    json.Number `json:"paid"`
}

func (s *Shop) charge(_ context.Context, in Payment) (Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charges = append(s.charges, Charge{OrderID: in.OrderID, Amount: in.Amount.String()})
	return Receipt{Receipt: "P-" + strings.TrimPrefix(in.OrderID, "A-"), Paid: in.Amount}, nil
}

// Done is all that the confirmation mentions.
type Done struct {
	OrderID  string      `json:"order_id"`
	Receipt  string      `json:"receipt"`
	Language string      `json:"language"`
	Model    string      `json:"model"`
	Storage  string      `json:"storage"`
	City     string      `json:"city"`
	Days     int         `json:"days"`
	Paid     json.Number `json:"paid"`
}

// Confirmation for the customer.
type Confirmation struct {
	OrderID string `json:"order_id"`
	Message string `json:"message"`
}

func confirm(_ context.Context, in Done) (Confirmation, error) {
	text := "%s %s ordered, %s CNY paid (%s); it reaches %s in %d day(s)"
	if in.Language == "zh" {
		text = "已下单 %s %s，已付 %s 元（%s），寄到%s，%d 天内送达"
	}
	return Confirmation{OrderID: in.OrderID, Message: fmt.Sprintf(text, in.Model, in.Storage, in.Paid, in.Receipt, in.City, in.Days)}, nil
}
