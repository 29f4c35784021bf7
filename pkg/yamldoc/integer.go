package yamldoc

import (
	"errors"
	"math/big"
	"strings"
)

var errNoDigits = errors.New("a number has no digits")

// basedInteger reads 0x1F, 0o17 and 0b101, of any length.
func basedInteger(s string) (text, kind string, err error) {
	digits := strings.ReplaceAll(s, "_", "")
	n, ok := new(big.Int).SetString(strings.TrimPrefix(digits, "+"), 0)
	if !ok {
		return "", "", errNoDigits
	}
	return n.String(), "!!int", nil
}
