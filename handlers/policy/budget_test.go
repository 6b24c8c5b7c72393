package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/policy/files"
)

const tooLong = "it takes too long to find out what this reads"

// ofMany returns a request in a workspace with 20,000 files. Its clock stands still.
func ofMany(a policy.Input) policy.Input {
	names := []string{".git/config"}
	for i := range 19_700 {
		names = append(names, fmt.Sprintf("big/%d/%d.go", i/100, i))
	}
	a = withFiles(a, names...)
	a.Tracked = func(string) (paths []string, ok bool) {
		for _, name := range names[1:] {
			paths = append(paths, "/workspace/"+name)
		}
		return paths, true
	}
	a.Now = func() time.Time { return time.Time{} }
	return a
}

func search() policy.Input {
	return policy.Input{Type: "grep", Patterns: []string{"x"}, Cwd: "/workspace", Root: "/workspace"}
}

func TestAnOrdinaryLargeWorkspaceIsDecidedByTheRules(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"grep -r x .", "rg x", "git status", "git diff --stat && git grep x -- big | head",
		"rg x big && grep -rn y big && diff -r big big"} {
		if v := policy.Evaluate(policy.Defaults, ofMany(bash(command))); v.Action != policy.Allow {
			t.Errorf("%s: %s: %s", command, v.Action, v.Reason)
		}
	}
	a := ofMany(search())
	a.Ignored = func(_ string, _ bool, spend func(int) bool) bool { return !spend(500) }
	if v := policy.Evaluate(policy.Defaults, a); v.Action != policy.Allow {
		t.Errorf("grep: %s: %s", v.Action, v.Reason)
	}
}

func TestAnEvaluationEndsWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	for _, a := range []policy.Input{ofMany(bash("grep -r x .")), ofMany(bash("git grep x -- big")),
		ofMany(bash("cd big && rg x")), ofMany(search())} {
		is := is.New(t)
		now := time.Time{}
		a.Now = func() time.Time { now = now.Add(time.Millisecond); return now }
		is.Equal(policy.Evaluate(policy.Defaults, a), policy.Verdict{Action: policy.AskPerson, Reason: tooLong})
		is.True(now.Sub(time.Time{}) < 4*time.Second) // it ended soon after
		now = time.Time{}
		is.Equal(len(policy.Suggest(a, nil)), 0)
		is.True(now.Sub(time.Time{}) < 4*time.Second)
	}
}

func TestAnEvaluationEndsWhenNobodyWaitsForIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	done := make(chan struct{})
	a := ofMany(bash("grep -r x ."))
	list, lists := a.List, 0
	a.List = func(folder string, most int) ([]files.Entry, bool) {
		if lists++; lists == 3 {
			close(done)
		}
		return list(folder, most)
	}
	a.Done = done
	is.Equal(policy.Evaluate(policy.Defaults, a), policy.Verdict{Action: policy.AskPerson, Reason: tooLong})
	is.Equal(lists, 3)
}

// The names of a workspace, times the lines of its ignore files or the words of a command, may be more than can be
// compared.
func TestAnEvaluationComparesSoMuchOnly(t *testing.T) {
	t.Parallel()
	compared := 0
	a := ofMany(search())
	list := a.List
	a.List = func(folder string, most int) ([]files.Entry, bool) {
		entries, ok := list(folder, most)
		for i := range entries {
			entries[i].Kind = files.Folder
		}
		return entries, ok
	}
	a.Ignored = func(_ string, _ bool, spend func(int) bool) bool {
		ok := spend(3000)
		if ok {
			compared += 3000
		}
		return !ok
	}
	v := policy.Evaluate(policy.Defaults, a)
	is := is.New(t)
	is.Equal(v, policy.Verdict{Action: policy.AskPerson, Reason: tooLong})
	is.True(compared <= 10_000_000)

	limits := "git grep x --"
	for i := range 600 {
		limits += fmt.Sprint(" f", i)
	}
	is.Equal(policy.Evaluate(policy.Defaults, ofMany(bash(limits))),
		policy.Verdict{Action: policy.AskPerson, Reason: tooLong})
	is.Equal(policy.Evaluate([]policy.Rule{{Permission: "bash", Pattern: "git grep*", Action: policy.Deny}},
		ofMany(bash(limits))).Action, policy.Deny)
}

func TestAnEvaluationListsAFolderOnce(t *testing.T) {
	t.Parallel()
	for _, command := range []string{strings.Repeat("rg x big;", 60),
		strings.Repeat("cd big/3 && git status; cd ../..;", 6), "grep -r x big; rg y .; diff -r big src; git diff -- big"} {
		a := ofMany(bash(command))
		list, lists, reads := a.List, map[string]int{}, 0
		a.List = func(folder string, most int) ([]files.Entry, bool) { lists[folder]++; return list(folder, most) }
		tracked := a.Tracked
		a.Tracked = func(folder string) ([]string, bool) { reads++; return tracked(folder) }
		v := policy.Evaluate(policy.Defaults, a)
		for folder, n := range lists {
			if n > 1 {
				t.Errorf("%.40s: %s was listed %d times (%s: %s)", command, folder, n, v.Action, v.Reason)
			}
		}
		if reads > 4 {
			t.Errorf("%.40s: the index was read %d times", command, reads)
		}
	}
}

func TestACommandOfTooManyCommandsIsAsked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(policy.Evaluate(policy.Defaults, bash(strings.Repeat("ls;", 64))).Action, policy.Allow)
	v := policy.Evaluate(policy.Defaults, bash(strings.Repeat("ls;", 65)))
	is.Equal(v, policy.Verdict{Action: policy.AskPerson,
		Reason: "it holds more than 64 commands, too many to be read at a glance"})
	is.Equal(policy.Suggest(bash(strings.Repeat("ls;", 65)), nil), nil)
	denied := append([]policy.Rule{{Permission: "bash", Pattern: "rm*", Action: policy.Deny}}, policy.Defaults...)
	is.Equal(policy.Evaluate(denied, bash(strings.Repeat("ls;", 70)+"rm x")).Action, policy.Deny)
}
