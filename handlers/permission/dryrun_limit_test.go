package permission_test

import (
	"context"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
)

func TestRulesAreTriedOnALimitedNumberOfRequests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	read := 0
	trial := permission.DryRun{Rules: []policy.Rule{{Permission: "todowrite", Pattern: "*", Action: policy.Allow}},
		Active:    func(context.Context, string) (permission.ActiveRules, error) { return policy.Evaluate, nil },
		Directory: func(string, string) string { return "" },
		Input: func(a events.PermissionRequest, _ string) policy.Input {
			return policy.Input{Type: a.Permission, Patterns: a.Patterns}
		},
		History: func(_ context.Context, _ string, each func(events.PastRequest) bool) error {
			request := events.PermissionRequest{Permission: "todowrite", Patterns: []string{"*"}}
			for read = 1; each(events.PastRequest{Request: request}); {
				read++
			}
			return nil
		}}
	for range 2 { // the second run reuses the verdicts of the first
		result, err := trial.Run(t.Context(), "")
		is.NoErr(err)
		is.Equal([]int{read, result.Requests, result.Allowed}, []int{permission.MaxDryRunRequests,
			permission.MaxDryRunRequests,
			permission.MaxDryRunRequests})
	}
}
