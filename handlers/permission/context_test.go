package permission

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// The gate's stop, and a client that hangs up, end what is looked at for them.
func TestAContextThatEndsEndsTheEvaluation(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
	is.NoErr(os.WriteFile(filepath.Join(dir, "a.go"), []byte("x"), 0o600))
	g := Gate{
		Permissions: &Permissions{},
		Session:     func(string) (Session, bool) { return Session{Chat: "c", Directory: dir}, true },
		Call:        func(context.Context, string, events.Call, time.Duration) (Call, bool) { return Call{}, false },
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, _ := g.input(ctx, "c", events.PermissionRequest{Permission: "grep", Patterns: []string{"x"},
		Metadata: []byte(`{"pattern":"x"}`)}, false, 0)
	is.Equal(policy.Evaluate(policy.Defaults, in).Action, policy.Allow)
	cancel()
	is.Equal(policy.Evaluate(policy.Defaults, in).Reason, "it takes too long to find out what this reads")
}
