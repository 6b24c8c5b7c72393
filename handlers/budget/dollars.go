package budget

import (
	"math"
	"strconv"
	"strings"
)

// currency is the sign of the currency of all costs: model catalogues and OpenCode count in US dollars.
const currency = "US$"

// smallest is the smallest cost that Dollars shows with four decimals.
const smallest = 1e-4

// Dollars formats an amount of US dollars with two to four decimals, and a smaller one with six: "US$0.50".
func Dollars(dollars float64) string {
	decimals := 4
	if dollars != 0 && math.Abs(dollars) < smallest {
		decimals = 6
	}
	whole, cents, _ := strings.Cut(strconv.FormatFloat(dollars, 'f', decimals, 64), ".")
	for len(cents) > 2 && strings.HasSuffix(cents, "0") {
		cents = cents[:len(cents)-1]
	}
	return currency + whole + "." + cents
}
