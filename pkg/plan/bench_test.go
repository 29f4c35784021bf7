package plan

import (
	"fmt"
	"strings"
	"testing"
)

const fiveSteps = `{"goal":"order a phone","assumptions":["the 256G model is in stock"],"steps":[
 {"id":"parse","tool":"echo","arguments":{"sku":"p-256","count":1}},
 {"id":"stock","tool":"stock.check","arguments":{"sku":{"$ref":"steps.parse.result.sku"},"count":1},"depends_on":["parse"],
  "expect":{"checks":[{"expression":"result.stock > 0","message":"out of stock","assumption":"a1"}]},"on_failure":"replan_remaining"},
 {"id":"price","tool":"echo","arguments":{"price":{"$ref":"steps.stock.result.price"}},"depends_on":["stock"],"retry":3},
 {"id":"create","tool":"echo","arguments":{"order":"o-1","price":{"$ref":"steps.price.result.price"}},"depends_on":["price"]},
 {"id":"pay","tool":"pay","arguments":{"amount":{"$ref":"steps.price.result.price"}},"depends_on":["create","price"],"confirm":true}]}`

func BenchmarkValidateFiveSteps(b *testing.B) {
	env := Environment{Tools: echoTools(), Permissions: []string{"payments"}}
	p, findings := Parse([]byte(fiveSteps))
	if HasErrors(findings) {
		b.Fatal(findings)
	}
	if _, findings := Validate(p, env); HasErrors(findings) {
		b.Fatal(findings)
	}
	b.ReportAllocs()
	for b.Loop() {
		Validate(p, env)
	}
}

func BenchmarkParseFiveSteps(b *testing.B) {
	doc := []byte(fiveSteps)
	b.ReportAllocs()
	for b.Loop() {
		Parse(doc)
	}
}

func BenchmarkDigestFiveSteps(b *testing.B) {
	p, _ := Parse([]byte(fiveSteps))
	b.ReportAllocs()
	for b.Loop() {
		Digest(p)
	}
}

// manySteps is a plan of layers, each step referring to three of the layer before.
func manySteps(n int) string {
	var b strings.Builder
	b.WriteString(`{"goal":"g","steps":[`)
	const width = 100
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":"s%d","tool":"stock.check","arguments":{"sku":"x%d","count":1`, i, i)
		if i >= width {
			fmt.Fprintf(&b, `,"city":{"$ref":"steps.s%d.result.sku"}},"depends_on":["s%d","s%d"],"expect":{"checks":["result.stock > 0"]}}`, i-width, i-width, i/width*width-width)
		} else {
			b.WriteString(`}}`)
		}
	}
	b.WriteString(`]}`)
	return b.String()
}

func BenchmarkRead20000Steps(b *testing.B) {
	env := Environment{Tools: echoTools()}
	doc := []byte(manySteps(20_000))
	if _, findings := Read(doc, env); HasErrors(findings) {
		b.Fatal(findings[0])
	}
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		Read(doc, env)
	}
}

func BenchmarkResolveWideJoin(b *testing.B) {
	var args strings.Builder
	args.WriteString(`{"inputs":[`)
	for i := range 1000 {
		if i > 0 {
			args.WriteByte(',')
		}
		fmt.Fprintf(&args, `{"$ref":"steps.s%d.result.digest"}`, i)
	}
	args.WriteString(`]}`)
	value := text(`{"size":12,"digest":"0123456789abcdef","more":{"a":[1,2,3]}}`)
	in := text(args.String())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Resolve(in, func(Reference) Target { return Target{Found: true, Value: value} }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEvalCheck(b *testing.B) {
	scope := Scope{Result: text(`{"stock":3,"price":9011.00}`)}
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := EvalCheck("result.stock > 0 && result.price < 10000.0", scope); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
