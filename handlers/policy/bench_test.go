package policy_test

import (
	"fmt"
	"testing"

	"pocketcoder/handlers/policy"
)

// BenchmarkEvaluate1000Rules is a compound command against a thousand rules. The last ones match.
func BenchmarkEvaluate1000Rules(b *testing.B) {
	var rules []policy.Rule
	for i := range 1000 - len(policy.Defaults) {
		switch i % 4 {
		case 0:
			rules = append(rules, policy.Rule{Permission: "bash", Pattern: fmt.Sprintf("npm run task%d*", i)})
		case 1:
			rules = append(rules, policy.Rule{Permission: "bash", Pattern: fmt.Sprintf("tool%d --flag 'a b' *", i),
				Action: policy.Deny})
		case 2:
			rules = append(rules, policy.Rule{Permission: "read", Pattern: fmt.Sprintf("secrets/%d/**", i), Action: policy.Deny})
		case 3:
			rules = append(rules, policy.Rule{Permission: "webfetch", Pattern: fmt.Sprintf("https://host%d.example.com/*", i)})
		}
	}
	rules = append(rules, policy.Defaults...)
	ask := policy.Input{Type: "bash", Command: "cd src && git log --oneline -20 -- api | grep -n 'fix' | head -5",
		Cwd: "/workspace", Root: "/workspace"}
	b.ReportAllocs()
	for b.Loop() {
		if v := policy.Evaluate(rules, ask); v.Action != policy.Allow {
			b.Fatal(v.Reason)
		}
	}
}
