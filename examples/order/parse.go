package order

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/pkg/tool"
)

// Text is a wish in words.
type Text struct {
	Text string `json:"text"`
}

// Wish is what was understood.
type Wish struct {
	Model    string `json:"model"`
	Storage  string `json:"storage"`
	Colour   string `json:"colour"`
	Quantity int    `json:"quantity"`
	City     string `json:"city"`
	// Language is "zh" or "en".
	Language string `json:"language"`
}

var (
	modelPattern   = regexp.MustCompile(`(?i)iphone\s*15(\s*pro)?`)
	storagePattern = regexp.MustCompile(`(?i)(128|256|512)\s*GB?`)
	countPattern   = regexp.MustCompile(`(?i)(\d+)\s*(?:台|部|个)|(?:order|buy)\s+(\d+)`)
	cityPattern    = regexp.MustCompile(`(?i)(?:寄到|送到|发到)\s*([^\s，,。.]+)|(?:to|in)\s+([\p{L} ]+?)\s*(?:[,.]|$)`)
	chinese        = regexp.MustCompile(`\p{Han}`)
)

var colours = []struct{ zh, en string }{{"黑", "black"}, {"白", "white"}, {"蓝", "blue"}}

func parse(_ context.Context, in Text) (Wish, error) {
	w := Wish{Quantity: 1, Language: "en", Storage: "128G", Colour: "black"}
	if chinese.MatchString(in.Text) {
		w.Language = "zh"
	}
	m := modelPattern.FindStringSubmatch(in.Text)
	if m == nil {
		return w, tool.Errorf("not_understood", "no model that the shop sells in %q; it sells iPhone 15 and iPhone 15 Pro", in.Text)
	}
	w.Model = "iPhone 15"
	if m[1] != "" {
		w.Model = "iPhone 15 Pro"
	}
	if m := storagePattern.FindStringSubmatch(in.Text); m != nil {
		w.Storage = m[1] + "G"
	}
	if m := countPattern.FindStringSubmatch(in.Text); m != nil {
		n, err := strconv.Atoi(m[1] + m[2])
		if err != nil || n < 1 || n > 99 {
			return w, tool.Errorf("not_understood", "quantity %s is outside 1 to 99", m[1]+m[2])
		}
		w.Quantity = n
	}
	for _, c := range colours {
		if strings.Contains(in.Text, c.zh) || strings.Contains(strings.ToLower(in.Text), c.en) {
			w.Colour = c.en
		}
	}
	c := cityPattern.FindStringSubmatch(in.Text)
	if c == nil {
		return w, tool.Errorf("not_understood", "no city in %q; say where to send it", in.Text)
	}
	w.City = strings.TrimSpace(c[1] + c[2])
	return w, nil
}
