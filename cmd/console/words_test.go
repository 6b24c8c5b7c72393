package console

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	permissions "pocketcoder/handlers/permission"
	"pocketcoder/ops/expect"
)

func TestListedModel(t *testing.T) {
	models := []string{"a/large", "a/org/x", "a/small", "b/large"}
	for name, want := range map[string]string{"a/large": "a/large", "small": "a/small", "org/x": "a/org/x", "large": "",
		"x": "", "c/small": ""} {
		is := is.New(t)
		got, err := listedModel(name, models)
		is.Equal(got, want)
		is.Equal(err == nil, want != "")
	}
}

func TestParseDecision(t *testing.T) {
	authorized, denied := decisionInput{decision: events.Authorized}, func(reason string) decisionInput {
		return decisionInput{decision: events.Denied, reason: reason}
	}
	for words, want := range map[string]decisionInput{
		"y": authorized, "YES": authorized, "n": denied(""), "no": denied(""),
		"n use make": denied("use make"), "No, use make": denied("use make"), "use make instead": denied("use make instead"),
		"e": {edit: true}, "E": {edit: true}, "e git status": {edit: true, edited: "git status"}, "e echo a\necho b": {edit: true, edited: "echo a\necho b"},
		"edit the file instead": denied("edit the file instead"), // words, not a command
		"a":                     {always: true}, "a all": {always: true, scope: permissions.ScopeAll}, "a 90m": {always: true, validFor: "90m"},
		"a agent 1h": {always: true, scope: permissions.ScopeAgent, validFor: "1h"}, "a 1h chat": {always: true, scope: permissions.ScopeChat, validFor: "1h"},
		"a better way is make": denied("a better way is make"), "a all chat": denied("a all chat"), "a -1h": denied("a -1h"),
		"always use make": denied("always use make"),
	} {
		t.Run(words, func(t *testing.T) {
			is := is.New(t)
			got, ok := parseDecision(words)
			is.True(ok)
			is.Equal(got, want)
		})
	}
	for _, words := range []string{"y but only once", "", "yse", "ok", "e, git status"} {
		_, ok := parseDecision(words)
		is.New(t).True(!ok) // words
	}
}

func TestParseAnswer(t *testing.T) {
	one := render.Question{Labels: []string{"Red", "Blue"}}
	many := render.Question{Labels: []string{"Red", "Blue"}, Multiple: true}
	own := render.Question{Labels: []string{"Red", "Blue"}, Custom: true}
	free := render.Question{Custom: true}
	for _, c := range []struct {
		q     render.Question
		words string
		want  string
	}{
		{one, "2", "[Blue] false"}, {one, "1 2", "[] false one answer, please"}, {many, "1, 2", "[Red Blue] false"},
		{one, "3", "[] false choose 1 to 2"}, {own, "3", "[] false choose 1 to 2"}, {own, "0", "[] false choose 1 to 2"},
		{many, "1 7", "[] false choose 1 to 2"}, {one, "Red", "[Red] false"}, {one, "green", "[] false choose 1 to 2"},
		{own, "dark red, 2", "[dark red, 2] false"}, {own, "3 of them", "[3 of them] false"}, {free, "7", "[7] false"},
		{one, "-", "[] true"}, {one, "", "[] false an answer is needed"},
	} {
		t.Run(c.words, func(t *testing.T) {
			answers, rejected, problem := parseAnswer(c.q, c.words)
			is.New(t).Equal(strings.TrimSpace(fmt.Sprint(answers, rejected, " ", problem)), c.want)
		})
	}
}

func TestBackslashContinuesALine(t *testing.T) {
	is := is.New(t)
	var got []string
	read, _ := readLines(t.Context(), strings.NewReader("one\ntwo\\\nthree\r\n\nlast\\"))
	for line := range read {
		got = append(got, line.Text)
	}
	is.Equal(got, []string{"one", "two\nthree", "", `last\`})
}

func TestNoRuleIsProposedForABudgetRequest(t *testing.T) {
	a := pendingItem{permission: &render.Request{Content: events.PermissionRequest{Permission: events.KindBudget}}}
	expect.Lacks(t, a.promptText(), "always")
}

func TestACreatedNameIsKeptOrDeletedByAPlainAnswerOnly(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	c := newConversation(&client.System{}, Options{Chat: "chat1"}, nil)
	c.show = render.New(&render.Screen{Out: &out})
	a := pendingItem{permission: &render.Request{Content: events.PermissionRequest{Permission: events.KindKeep}}}
	is.Equal(a.promptText(), "keep it? y keeps it, n deletes it: ")
	for _, words := range []string{"now add a test", "a", "e ls", "y please"} { // a script's next message, too
		out.Reset()
		is.NoErr(c.answerPermission(t.Context(), &a, words))
		expect.Contains(t, out.String(), "n deletes it")
	}
	c.pending, c.ended, c.working, c.caughtUp = []pendingItem{a}, true, true, true
	_, over := c.isOver()
	is.True(!over) // the turn does not wait for it
	c.working = false
	code, over := c.isOver()
	is.Equal([]any{code, over}, []any{End(Pending), true})
}

func TestEveryListedSlashCommandIsCarriedOut(t *testing.T) {
	is := is.New(t)
	names := []string{chat.SlashQuit, chat.SlashStop} // which scripts have too
	for name := range slashCommands {
		names = append(names, name)
	}
	listed := 0
	for _, c := range chat.SlashCommands(chat.Terminal) {
		listed++
		is.True(slices.Contains(names, c.Name))
	}
	is.Equal(len(names), listed)
	is.True(isStop("/abort") && isStop("/stop") && !isStop("/stop the server"))
}

func TestAbortOfAScriptIsReadWhileATurnRuns(t *testing.T) {
	is := is.New(t)
	read, aborts := readLines(t.Context(), strings.NewReader("one\n/abort \ntwo\n/abort\n"))
	is.Equal((<-read).Text, "one")
	c := newConversation(&client.System{}, Options{Chat: "chat1"}, nil)
	c.input, c.scriptAborts, c.caughtUp, c.working = read, aborts, true, true
	is.True(c.lines() == nil)
	is.True(<-c.abortsOfScript()) // the lines of a script are not read now
	c.working = false
	is.True(c.abortsOfScript() == nil)
	is.Equal((<-c.lines()).Text, "two")
	is.Equal((<-c.lines()).Text, "/abort")
}

func TestInputThatEndsAfterAnAbortWaitsForTheEndOfTheTurn(t *testing.T) {
	is := is.New(t)
	c := newConversation(&client.System{}, Options{Chat: "chat1"}, nil)
	c.pending, c.ended, c.working, c.stopping, c.caughtUp = []pendingItem{{}}, true, true, true, true
	_, over := c.isOver()
	is.True(!over)
}
