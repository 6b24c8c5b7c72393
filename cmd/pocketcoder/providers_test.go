package main

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func TestProvidersAreRecordedAsOpenCodeKnowsThem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin := p.admin(t)
	one := func(id string) (found record) {
		t.Helper()
		expect.Eventually(t, id+" is recorded", func() bool {
			list := admin.list(t, "llm_providers", `provider_id = "`+id+`"`)
			if len(list) == 1 {
				found = list[0]
			}
			return len(list) == 1
		})
		return found
	}
	demo, other := one("demo"), one("anthropic")
	is.Equal([]any{demo["is_connected"], demo["models"]}, []any{true, []any{"demo"}})
	is.Equal([]any{other["is_connected"], other["env_vars"]}, []any{false, []any{"ANTHROPIC_API_KEY"}})
	// what is usable is recorded first, and the list of all says the same of it
	is.Equal(one("demo")["updated"], demo["created"])
}
