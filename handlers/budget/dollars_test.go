package budget_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/budget"
)

func TestACostNamesItsCurrency(t *testing.T) {
	t.Parallel()
	for dollars, want := range map[float64]string{0: "US$0.00", 5: "US$5.00", 0.5: "US$0.50", 1.0973: "US$1.0973",
		1.09734: "US$1.0973", 0.00012: "US$0.0001", 0.000012: "US$0.000012", 1234.5: "US$1234.50", 0.0001: "US$0.0001"} {
		is.New(t).Equal(budget.Dollars(dollars), want)
	}
}
