package permission_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/ops/expect"
)

// filesOfGate opens a gate whose workspace has programs.
func filesOfGate(t testing.TB) *permissiontest.RunningGate {
	t.Helper()
	g := permissiontest.OpenGate(t)
	is.New(t).NoErr(os.Mkdir(g.Directory+"/sub", 0o700))
	for _, name := range []string{"deploy.sh", "x.py", "Makefile", "package.json", "sub/run.sh", "sub/Makefile", "other",
		".env"} {
		handlerstest.Write(t, filepath.Join(g.Directory, name), "old "+name+"\n")
	}
	return g
}

func decideAs(g *permissiontest.RunningGate, id string, c permission.Decide) error {
	c.Command, c.Chat, c.Permission = handlers.Command{Actor: handlerstest.Alice}, "c1", id
	_, err := g.Gate.Decide(g.T.Context(), c)
	return err
}

func TestAnApprovalOfACommandDoesNotCountIfAFileThatItNamesChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ command, change, names string }{
		"a script":                 {"sh deploy.sh", "deploy.sh", "deploy.sh"},
		"with a path":              {"./deploy.sh --now", "deploy.sh", "deploy.sh"},
		"of an interpreter":        {"python3 x.py", "x.py", "x.py"},
		"in a string":              {"bash -c 'sh deploy.sh'", "deploy.sh", "deploy.sh"},
		"make":                     {"make", "Makefile", "Makefile"},
		"a file that make prefers": {"make", "GNUmakefile", "GNUmakefile"},
		"npm":                      {"npm test", "package.json", "package.json"},
		"in a folder":              {"cd sub && sh run.sh", "sub/run.sh", "sub/run.sh"},
		"make in a folder":         {"make -C sub", "sub/Makefile", "sub/Makefile"},
		"that was missing":         {"sh new.sh", "new.sh", "new.sh"},
		"a file that is not named": {"sh deploy.sh", "other", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			g := filesOfGate(t)
			handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", c.command))
			g.AwaitIdle()
			shown := events.HashFiles(g.Referrals("per_1")[0].Files)
			handlerstest.Write(t, filepath.Join(g.Directory, c.change), "new\n")
			approve := permission.Decide{Decision: events.Authorized, ShownRequest: permission.ShownRequest{Files: shown}}
			err := decideAs(g, "per_1", approve)
			if c.names == "" {
				is.NoErr(err)
				is.Equal(len(g.Referrals("per_1")), 1)
				return
			}
			is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
			is.Equal(err.Error(), c.names+" changed while the request waited. Nothing was decided. Look at the request again.")
			decided, _ := g.Decisions("per_1")
			is.Equal(len(decided), 0)
			is.Equal(len(g.Referrals("per_1")), 2) // the person sees the files as they are now
			now := g.Referrals("per_1")[1]
			expect.Contains(t, now.Reason, c.names+" changed while the request waited. Read it again.")
			expect.Contains(t, now.Contents[len(now.Contents)-1].Text+now.Contents[0].Text, "new\n")

			// the card still shows the old files, or none
			is.Equal(handlerstest.Refusal(t, decideAs(g, "per_1", approve)), handlers.Conflict)
			approve.ShownRequest.Files = events.HashFiles(now.Files)
			is.NoErr(decideAs(g, "per_1", approve))
			decided, _ = g.Decisions("per_1")
			is.Equal(decided[0].Files, now.Files)
			is.Equal(g.Repeat("per_1"), "")
			handlerstest.Write(t, filepath.Join(g.Directory, c.change), "newer\n")
			is.Equal(g.Repeat("per_1"), c.names+" changed while the request waited. Read it again.")
		})
	}
}

func TestAChangedFileKeepsNothingButAnApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := filesOfGate(t)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "sh deploy.sh"),
		handlerstest.Bash("per_2", "make"), handlerstest.Bash("per_3", "python3 x.py"))
	g.AwaitIdle()
	handlerstest.Write(t, g.Directory+"/deploy.sh", "new\n")
	handlerstest.Write(t, g.Directory+"/Makefile", "new\n")
	is.NoErr(decideAs(g, "per_1", permission.Decide{Decision: events.Denied}))

	_, _, err := g.Gate.AllowAlways(t.Context(), permission.AllowAlways{Chat: "c1", Permission: "per_2",
		Scope: permission.ScopeChat, Command: handlers.Command{Actor: handlerstest.Alice}})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	decided, _ := g.Decisions("per_2")
	is.Equal(len(decided), 0)
	rules, err := g.Gate.RulesOf(t.Context(), "c1", "build")
	is.NoErr(err)
	for _, set := range rules {
		for _, r := range set {
			expect.Lacks(t, r.String(), "make") // nor is the rule stored
		}
	}

	// The file that only the edited command names is that of the decision.
	handlerstest.Write(t, g.Directory+"/other", "new\n")
	is.NoErr(decideAs(g, "per_3", permission.Decide{Decision: events.Authorized, Edited: "python3 other"}))
	is.Equal(g.Repeat("per_3"), "")
	handlerstest.Write(t, g.Directory+"/x.py", "new\n")
	is.Equal(g.Repeat("per_3"), "")
	handlerstest.Write(t, g.Directory+"/other", "newer\n")
	is.Equal(g.Repeat("per_3"), "other changed while the request waited. Read it again.")
}

func TestAPersonIsShownTheTextOfTheFilesThatACommandNames(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := filesOfGate(t)
	handlerstest.Write(t, g.Directory+"/binary", "a\x00b")
	handlerstest.Write(t, g.Directory+"/long", string(make([]byte, 16<<10+1)))
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "sh deploy.sh binary long .env"))
	g.AwaitIdle()
	r := g.Referrals("per_1")[0]
	is.Equal(r.Contents, []events.FileContent{{Path: g.Directory + "/deploy.sh", Text: "old deploy.sh\n"}})
	is.Equal(len(r.Files), 4) // the others may not change either
}
