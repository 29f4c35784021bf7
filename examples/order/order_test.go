package order

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

func call(t *testing.T, name, arguments string) (string, error) {
	t.Helper()
	s := &Shop{}
	for _, tl := range s.Tools() {
		if tl.Definition().Name == name {
			out, err := tl.Call(context.Background(), json.RawMessage(arguments))
			return string(out), err
		}
	}
	t.Fatalf("no tool %s", name)
	return "", nil
}

func TestWishesInTwoLanguages(t *testing.T) {
	for text, want := range map[string]string{
		"下单 1 台 iPhone 15 Pro 256G 黑色，寄到上海浦东":                `{"model":"iPhone 15 Pro","storage":"256G","colour":"black","quantity":1,"city":"上海浦东","language":"zh"}`,
		"买 3 部 iphone 15 白色 送到 北京":                           `{"model":"iPhone 15","storage":"128G","colour":"white","quantity":3,"city":"北京","language":"zh"}`,
		"Order 2 iPhone 15 Pro 512GB blue, ship to New York": `{"model":"iPhone 15 Pro","storage":"512G","colour":"blue","quantity":2,"city":"New York","language":"en"}`,
		"Buy an iPhone 15 and send it to Shanghai.":          `{"model":"iPhone 15","storage":"128G","colour":"black","quantity":1,"city":"Shanghai","language":"en"}`,
	} {
		arguments, err := json.Marshal(Text{text})
		if err != nil {
			t.Fatal(err)
		}
		got, err := call(t, "order.parse", string(arguments))
		if err != nil || got != want {
			t.Errorf("%s\n got %s, %v\nwant %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{"下单一台电视，寄到上海": "iPhone 15", "下单 1 台 iPhone 15": "no city", "买 0 台 iPhone 15 寄到上海": "1 to 99"} {
		arguments, err := json.Marshal(Text{text})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := call(t, "order.parse", string(arguments)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestPricesKeepTwoDecimals(t *testing.T) {
	got, err := call(t, "price.compute", `{"model":"iPhone 15 Pro","storage":"256G","quantity":1,"fee":12.00}`)
	if err != nil || got != `{"unit":8999.00,"total":9011.00,"currency":"CNY"}` {
		t.Fatalf("%s, %v", got, err)
	}
	if _, err := call(t, "price.compute", `{"model":"iPhone 15 Pro","storage":"1T","quantity":1,"fee":12.00}`); err == nil {
		t.Fatal("a price was made up")
	}
}

func TestStockIsWhatTheRunSays(t *testing.T) {
	for storage, want := range map[string]string{"256G": `"stock":0`, "128G": `"stock":4`, "1T": `"stock":0`} {
		got, err := call(t, "stock.check", `{"model":"iPhone 15 Pro","storage":"`+storage+`","stock":{"256G":0,"128G":4}}`)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %s, %v", storage, got, err)
		}
	}
}

func TestOnlyThePaymentMustNotBeRepeated(t *testing.T) {
	s := &Shop{}
	for _, tl := range s.Tools() {
		if d := tl.Definition(); d.Idempotent == (d.Name == "payment.charge") {
			t.Errorf("%s: idempotent %v", d.Name, d.Idempotent)
		}
	}
	for range 2 {
		if _, err := s.charge(t.Context(), Payment{OrderID: "A-1", Amount: "8011.00"}); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Charges(); len(got) != 2 || got[0] != (Charge{"A-1", "8011.00"}) {
		t.Errorf("charges %v", got)
	}
	if _, err := create(t.Context(), Order{}); err == nil {
		t.Error("an order was created without a key")
	}
}
