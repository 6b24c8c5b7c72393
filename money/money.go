// Package money formats costs for people.
//
// Promises: each cost names its currency. Model catalogues and OpenCode count in US dollars.
//
// It must not know what costs.
package money

import (
	"math"
	"strconv"
	"strings"
)

// Currency is the sign of the currency of all costs.
const Currency = "US$"

// smallest is the smallest cost that Text shows with four decimals.
const smallest = 1e-4

// Text formats an amount of US dollars with two to four decimals, and a smaller one with six: "US$0.50".
func Text(dollars float64) string {
	decimals := 4
	if dollars != 0 && math.Abs(dollars) < smallest {
		decimals = 6
	}
	whole, cents, _ := strings.Cut(strconv.FormatFloat(dollars, 'f', decimals, 64), ".")
	for len(cents) > 2 && strings.HasSuffix(cents, "0") {
		cents = cents[:len(cents)-1]
	}
	return Currency + whole + "." + cents
}
