package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

// runApp runs the program in this process, with an empty data directory unless the arguments name another.
func runApp(t testing.TB, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	home := t.TempDir()
	env := environment{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, getenv: func(name string) string {
		return map[string]string{"HOME": home}[name]
	}}
	err = app(t.Context(), env, args)
	return out.String(), errs.String(), err
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"chat --nonsense":            "flag provided but not defined: -nonsense",
		"chat a b":                   `unexpected argument "b"`,
		"chat a.*":                   `parse id "a.*"`,
		"chat -m=":                   "the message is empty",
		"chat --approve maybe":       `--approve must be ask, all or none, got "maybe"`,
		"chat c1 --title x":          "--title is for a new chat",
		"chats --limit 0":            "--limit must be at least 1, got 0",
		"chats x":                    `unexpected argument "x"`,
		"replay":                     "which chat?",
		"replay evt.>":               `parse id "evt.>"`,
		"replay c --speed fast":      `--speed must be max or a number above 0, got "fast"`,
		"replay c --speed NaN":       `--speed must be max`,
		"replay c --from 5 --to 4":   "--from 5 is after --to 4",
		"replay c --at 5 --from 1":   "--at shows one moment",
		"replay c --from -1":         "invalid value",
		"rebuild x":                  `unexpected argument "x"`,
		"nats-context --name ../../": "--name: parse id",
		"version x":                  `unexpected argument "x"`,
		"doctor x":                   `unexpected argument "x"`,
	} {
		t.Run(args, func(t *testing.T) {
			is := is.New(t)
			_, stderr, err := runApp(t, strings.Fields(args)...)
			is.True(errors.Is(err, errUsage))
			expect.Contains(t, stderr, want) // stderr names what was wrong
		})
	}
}

func TestHelpTeaches(t *testing.T) {
	for _, name := range []string{"chat", "chats", "replay", "admin rebuild", "admin nats-context", "policy why", "doctor"} {
		is := is.New(t)
		_, stderr, err := runApp(t, append(strings.Fields(name), "-h")...)
		is.True(errors.Is(err, flag.ErrHelp))
		expect.Contains(t, stderr, "pocketcoder "+name)
		expect.Contains(t, stderr, "Exit status:")
		expect.Contains(t, stderr, "POCKETCODER_DATA")
	}
}

func TestHelpOfACommandIsThatOfTheCommand(t *testing.T) {
	for _, name := range []string{
		"up", "chat", "chats", "user", "user add", "policy", "policy test", "policy why", "budget", "replay", "replay --follow", "attach", "admin",
		"admin rebuild", "admin nats-context", "admin nats-config", "worker", "sandbox", "sandbox ps", "sandbox shell", "doctor", "version",
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			_, want, _ := runApp(t, append(strings.Fields(name), "-h")...)
			_, got, err := runApp(t, append([]string{"help"}, strings.Fields(name)...)...)
			is.True(errors.Is(err, flag.ErrHelp))
			got, _, _ = strings.Cut(got, "\nFlags:") // whose defaults differ with HOME
			got, _, _ = strings.Cut(got, "\nBasics:")
			expect.Contains(t, got, "pocketcoder "+name)
			is.True(strings.HasPrefix(want, got))
		})
	}
	is := is.New(t)
	_, stderr, err := runApp(t, "help", "nonsense")
	is.Equal(err, errUsage)
	expect.Contains(t, stderr, `there is no command "nonsense"`)
	stdout, _, err := runApp(t, "help", "help")
	is.NoErr(err)
	is.Equal(stdout, usage)
}

func TestFormerNamesOfCommandsStillWork(t *testing.T) {
	for former, now := range formerNames {
		is := is.New(t)
		_, old, err := runApp(t, former, "-h")
		is.True(errors.Is(err, flag.ErrHelp))
		_, got, _ := runApp(t, append(slices.Clone(now), "-h")...)
		old, _, _ = strings.Cut(old, "\nFlags:") // whose defaults differ with HOME
		is.True(strings.HasPrefix(got, old) && strings.HasPrefix(old, "pocketcoder "+now[0]))
	}
}

func TestTheHelpOfUpShowsTheBasicsFirst(t *testing.T) {
	is := is.New(t)
	_, basics, err := runApp(t, "up", "-h")
	is.True(errors.Is(err, flag.ErrHelp))
	is.True(strings.Contains(basics, "-workspace directory") && strings.Contains(basics, "pocketcoder up -h all"))
	expect.Lacks(t, basics, "-push-relay")
	_, all, err := runApp(t, "up", "-h", "all")
	is.True(errors.Is(err, flag.ErrHelp))
	for _, g := range upGroups {
		expect.Contains(t, all, "\n"+g.name+":\n")
		for _, name := range g.flags {
			is.True(strings.Contains(all, "\n  -"+name+" ") || strings.Contains(all, "\n  -"+name+"\n")) // a flag of that name
		}
	}
	expect.Contains(t, all, "-push-relay")
}

func TestWithoutAHomeTheDataDirectoryMustBeNamed(t *testing.T) {
	is := is.New(t)
	env, said := toEnvironment(nil)
	is.Equal(app(t.Context(), env, []string{"chats"}), errUsage)
	is.Equal(said.String(), "chats: HOME is not set; name the data directory with --data or POCKETCODER_DATA\n")
}

func TestAVariableApprovesNothingThatAPersonIsThereToDecide(t *testing.T) {
	for name, c := range map[string]struct {
		interactive bool
		args        []string
		want        string
	}{
		"a person":          {true, nil, approveAsk},
		"a person, by flag": {true, []string{"--approve", "all"}, approveAll},
		"one message":       {true, []string{"-m", "hello"}, approveAll},
		"a script":          {false, nil, approveAll},
		"a script, by flag": {false, []string{"--approve", "none"}, approveNone},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			env, _ := toEnvironment(map[string]string{"POCKETCODER_APPROVE": "all", "POCKETCODER_DATA": t.TempDir()})
			env.interactive = c.interactive
			o, err := chatFlags(env, c.args)
			is.NoErr(err)
			is.Equal(o.approve, c.want)
		})
	}
}

func TestNothingRunningIsSaid(t *testing.T) {
	for _, args := range []string{"chat -m hello", "chats", "replay c1", "replay c1 --follow", "admin rebuild", "admin nats-context"} {
		is := is.New(t)
		_, _, err := runApp(t, strings.Fields(args)...)
		is.True(errors.Is(err, errNotRunning))
	}
}

func TestExitStatusTellsHowTheTurnEnded(t *testing.T) {
	for name, want := range map[string]exitCode{
		"perm-bash-once": exitCompleted, "perm-bash-reject": exitDenied, "perm-bash-reject-message": exitCompleted,
		"child-shell": exitCompleted, "abort-text": exitAborted, "error-401": exitFailed, "error-nomodel": exitFailed,
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			all, _ := trace(t, name)
			is.Equal(turnOf(t, all).exit(), want)
			is.Equal(turnOf(t, all).whose(), projections.TurnUser)
		})
	}
}

// turnOf follows a trace whose first session is the chat's own.
func turnOf(t *testing.T, all []events.Event) *turn {
	t.Helper()
	f := newTurn(readOpenCode(events.OpenCode{Properties: all[0].Data}).SessionID)
	for _, e := range all {
		f.apply(e)
	}
	return f
}

func TestTurnIsTheAssistantsUntilItHasEnded(t *testing.T) {
	is := is.New(t)
	all, _ := trace(t, "abort-text")
	idle := slices.IndexFunc(all, func(e events.Event) bool { return e.Subject.Kind == "opencode.session.idle" })
	is.Equal(turnOf(t, all[:idle+1]).whose(), projections.TurnAssistant) // the first idle comes early
	f := turnOf(t, all)
	f.apply(own(t, 100, "user:u", events.MessageSubmitted{Message: "m2"}))
	is.Equal(f.whose(), projections.TurnAssistant)
	f.begin()
	is.True(f.apply(own(t, 101, "user:u", events.MessageFailed{Message: "m2", Error: "no OpenCode"})))
	is.Equal(f.whose(), projections.TurnUser)
	is.Equal(f.exit(), exitCode(exitFailed))
}

func TestLostTurnIsResumedAsAnother(t *testing.T) {
	is := is.New(t)
	f := newTurn("ses_1")
	is.True(f.apply(own(t, 1, "engine:local", events.TurnLost{Session: "ses_1"})))
	is.Equal(f.exit(), exitCode(exitLost))
	f.apply(own(t, 2, "engine:local", events.MessageSubmitted{Message: "m2", Resumes: "per_1"}))
	is.Equal(f.exit(), exitCode(exitCompleted))
	is.True(!f.apply(own(t, 3, "engine:local", events.TurnLost{Session: "ses_child"}))) // a subagent's is not the chat's
}

// OpenCode ends a message like this when it is stopped while it waits to try the provider again.
func TestTurnThatWasStoppedBetweenRetriesIsNotCompleted(t *testing.T) {
	is := is.New(t)
	f := newTurn("ses_1")
	take := func(kind, properties string) {
		e, err := events.NewOpenCode("chat1", "local", "evt_1", -1, events.OpenCode{Type: kind, Properties: json.RawMessage(properties)})
		is.NoErr(err)
		f.apply(numbered(e, 1))
	}
	take("message.updated", `{"sessionID":"ses_1","info":{"id":"msg_1","role":"assistant","time":{"created":1}}}`)
	take("session.status", `{"sessionID":"ses_1","status":{"type":"retry","attempt":1,"message":"no route"}}`)
	take("message.updated", `{"sessionID":"ses_1","info":{"id":"msg_1","role":"assistant","time":{"created":1,"completed":2}}}`)
	take("session.status", `{"sessionID":"ses_1","status":{"type":"idle"}}`)
	is.Equal(f.whose(), projections.TurnUser)
	is.Equal(f.exit(), exitCode(exitLost))
	take("message.updated", `{"sessionID":"ses_1","info":{"id":"msg_2","role":"assistant","finish":"stop","time":{"created":3,"completed":4}}}`)
	is.Equal(f.exit(), exitCode(exitCompleted))
}

func TestModelIsFoundInTheList(t *testing.T) {
	models := []string{"a/large", "a/org/x", "a/small", "b/large"}
	for name, want := range map[string]string{"a/large": "a/large", "small": "a/small", "org/x": "a/org/x", "large": "", "x": "", "c/small": ""} {
		is := is.New(t)
		got, err := listedModel(name, models)
		is.Equal(got, want)
		is.Equal(err == nil, want != "")
	}
}

func TestHelpWithoutFlagsHasNoListOfThem(t *testing.T) {
	is := is.New(t)
	_, stderr, err := runApp(t, "policy", "-h")
	is.True(errors.Is(err, flag.ErrHelp))
	expect.Lacks(t, stderr, "Flags:")
	_, stderr, _ = runApp(t, "replay", "-h")
	expect.Lacks(t, stderr, "18446744073709551615")
}

func TestDecisionIsReadFromAPersonsWords(t *testing.T) {
	authorized, denied := meant{decision: events.Authorized}, func(reason string) meant { return meant{decision: events.Denied, reason: reason} }
	for words, want := range map[string]meant{
		"y": authorized, "YES": authorized, "n": denied(""), "no": denied(""),
		"n use make": denied("use make"), "No, use make": denied("use make"), "use make instead": denied("use make instead"),
		"e": {edit: true}, "E": {edit: true}, "e git status": {edit: true, edited: "git status"}, "e echo a\necho b": {edit: true, edited: "echo a\necho b"},
		"edit the file instead": denied("edit the file instead"), // words, not a command
		"a":                     {always: true}, "a all": {always: true, scope: handlers.ScopeAll}, "a 90m": {always: true, lasts: "90m"},
		"a agent 1h": {always: true, scope: handlers.ScopeAgent, lasts: "1h"}, "a 1h chat": {always: true, scope: handlers.ScopeChat, lasts: "1h"},
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

func TestAnswerIsNumbersOrWords(t *testing.T) {
	one := openQuestion{labels: []string{"Red", "Blue"}}
	many := openQuestion{labels: []string{"Red", "Blue"}, multiple: true}
	own := openQuestion{labels: []string{"Red", "Blue"}, custom: true}
	free := openQuestion{custom: true}
	for _, c := range []struct {
		q     openQuestion
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

func TestLineThatEndsWithABackslashGoesOn(t *testing.T) {
	is := is.New(t)
	var got []string
	for line := range readLines(t.Context(), strings.NewReader("one\ntwo\\\nthree\r\n\nlast\\")) {
		got = append(got, line.text)
	}
	is.Equal(got, []string{"one", "two\nthree", "", `last\`})
}

func TestListedChatsCannotTouchTheTerminal(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	is.NoErr(printChats(&out, []listedChat{{Chat: projections.Chat{Record: projections.Record{ID: "c1"}, Turn: "user", Title: "a\x1b[2J", Preview: "b\rc", LastActive: "2026-01-02 03:04:05.000Z"}}}))
	is.True(!strings.ContainsAny(out.String(), "\x1b\r"))
	out.Reset()
	is.NoErr(printChats(&out, nil))
	expect.Contains(t, out.String(), "no chats yet")
}

func TestListedRulesSayWhomTheyAreForAndCannotTouchTheTerminal(t *testing.T) {
	is := is.New(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for fields, want := range map[string]string{
		`{"tool":"bash","pattern":"git status*","action":"allow","active":true}`:              "bash: git status* active",
		`{"tool":"bash","pattern":"rm*","action":"deny","active":false}`:                      "deny bash: rm* paused",
		`{"tool":"read","pattern":"a","active":true,"expires_at":"2026-01-02 03:04:05.000Z"}`: "read: a expired",
		`{"tool":"read","pattern":"a","active":true,"expires_at":"2026-01-02 03:04:05.001Z"}`: "read: a active",
	} {
		var f ruleFields
		is.NoErr(json.Unmarshal([]byte(fields), &f))
		is.Equal(f.text("tool_permissions")+" "+f.state(now), want)
	}
	is.Equal(ruleFields{Permission: "write"}.text("whitelist_actions"), "write: every target")
	is.Equal(ruleFields{Permission: "bash", Value: "ls"}.text("whitelist_actions"), "bash: ls")
	is.Equal(ruleFields{Name: "src", Pattern: "/w/**"}.text("whitelist_targets"), "target src: /w/**")
	var out bytes.Buffer
	is.NoErr(printRules(&out, []listedRule{{ID: "tool_permissions/r", Rule: "bash: a\x1b[2J", Chat: "c1", Note: "b\rc"}, {Agent: "poco"}}))
	is.True(!strings.ContainsAny(out.String(), "\x1b\r"))
	is.True(strings.Contains(out.String(), "chat c1") && strings.Contains(out.String(), "agent poco"))
}
