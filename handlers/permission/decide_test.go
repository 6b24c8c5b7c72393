package permission

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/policy"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

// What every decision does, without a log: given what happened, when a command is given, then what comes of it.

func TestDecidePermission(t *testing.T) {
	authorize := Decide{Chat: "c1", Permission: "per_1", Decision: events.Authorized}
	for name, c := range map[string]struct {
		given []handlerstest.Fact
		when  Decide
		then  handlers.Code // "" is decided
		want  string
	}{
		"an open ask":             {given: []handlerstest.Fact{handlerstest.Bash("per_1", "ls")}, when: authorize},
		"an interrupted ask":      {given: []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), {Data: events.PermissionInterrupted{Permission: "per_1"}}}, when: authorize},
		"beside another decision": {given: []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), handlerstest.Bash("per_2", "ls"), handlerstest.Decided("per_2", "ls", events.Denied)}, when: authorize},
		"nothing asked":           {when: authorize, then: handlers.NotFound, want: "no permission request per_1"},
		"another ask":             {given: []handlerstest.Fact{handlerstest.Bash("per_2", "ls")}, when: authorize, then: handlers.NotFound},
		"authorized by a rule":    {given: []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), {By: events.ActorPolicy, Data: handlerstest.Decided("per_1", "ls", events.Authorized).Data}}, when: authorize, then: handlers.Conflict, want: "authorized by policy"},
		"for another reason":      {given: []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), handlerstest.Decided("per_1", "ls", events.Authorized)}, when: Decide{Chat: "c1", Permission: "per_1", Decision: events.Authorized, Reason: "why not"}, then: handlers.Conflict, want: "authorized by user:alice"},
		"denied before":           {given: []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), handlerstest.Decided("per_1", "ls", events.Denied)}, when: authorize, then: handlers.Conflict, want: "denied by user:alice"},
		"expired":                 {given: []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), {Data: events.PermissionExpired{Permission: "per_1", Reason: "its turn is over"}}}, when: authorize, then: handlers.Conflict, want: "its turn is over"},
		"answered in OpenCode":    {given: []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), handlerstest.Replied("per_1")}, when: authorize, then: handlers.Conflict, want: "answered in OpenCode: once"},
		"OpenCode echoed": {
			given: []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), handlerstest.Decided("per_1", "ls", events.Denied), handlerstest.Replied("per_1")}, when: authorize, then: handlers.Conflict, want: "denied by user:alice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := NewState()
			handlerstest.Given(t, s, c.given...)
			d, _, err := s.Decide(c.when)
			is.Equal(handlerstest.Refusal(t, err), c.then)
			if c.then != "" {
				expect.Contains(t, err.Error(), c.want)
				is.Equal(d, nil)
				return
			}
			is.Equal(d, events.PermissionDecided{
				Permission: "per_1", Decision: events.Authorized, Session: "ses_1", Call: "call_per_1", Type: "bash", Command: "ls", Request: handlerstest.Request("ls"),
			})
		})
	}
}

// What is lost may have used an approval, or denied a request.
func TestAnEventThatCannotBeReadEndsOlderRequestsAndApprovals(t *testing.T) {
	is := is.New(t)
	s := NewState()
	handlerstest.Given(t, s, handlerstest.Bash("per_1", "ls"), handlerstest.Bash("per_2", "ls"),
		handlerstest.Decided("per_2", "ls", events.Authorized))
	is.Equal(s.WhyInvalid(s.Request("per_2").Outcome, time.Now()), "")
	lost, err := events.New("c1", events.ActorSandbox, events.ExecRequested{Exec: "x1", Permission: "per_2"})
	is.NoErr(err)
	lost.Seq = 50
	s.Apply(lost.WithoutBody(nil, errors.New("no such blob")))
	expect.Contains(t, s.WhyInvalid(s.Request("per_2").Outcome, time.Now()), "event #50 after the approval cannot be read")
	_, _, err = s.Decide(Decide{Chat: "c1", Permission: "per_1", Decision: events.Authorized})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)

	later := handlerstest.Bash("per_3", "ls") // nothing is lost after it
	asked, err := events.NewOpenCode("c1", "local", "evt_3", -1, later.Data.(events.OpenCode))
	is.NoErr(err)
	asked.Seq = 51
	s.Apply(asked)
	_, _, err = s.Decide(Decide{Chat: "c1", Permission: "per_3", Decision: events.Authorized})
	is.NoErr(err)
}

func TestADecisionIsOnlyAboutTheRequestThatWasShown(t *testing.T) {
	facts := []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), handlerstest.Bash("per_2", "rm -rf build"),
		handlerstest.Permission("per_3", "ses_1", "call_3", "edit", []string{"a"}, map[string]string{"filepath": "/w/a"})}
	for name, c := range map[string]struct {
		permission string
		shown      ShownRequest
		want       string // of the refusal; "" is decided
		field      string
	}{
		"nothing is said to be shown":      {permission: "per_2"},
		"the command":                      {permission: "per_2", shown: ShownRequest{Command: "rm -rf build"}},
		"the hash":                         {permission: "per_2", shown: ShownRequest{Request: handlerstest.Request("rm -rf build")}},
		"both":                             {permission: "per_1", shown: ShownRequest{Command: "ls", Request: handlerstest.Request("ls")}},
		"another command":                  {permission: "per_2", shown: ShownRequest{Command: "ls"}, want: `Request per_2 is not the one that was shown: its command is "rm -rf build". Nothing was decided.`, field: "shown_command"},
		"another hash":                     {permission: "per_2", shown: ShownRequest{Request: handlerstest.Request("ls")}, want: "Request per_2 is not the one that was shown: its hash is " + handlerstest.Request("rm -rf build"), field: "shown_request"},
		"the command with another hash":    {permission: "per_2", shown: ShownRequest{Command: "rm -rf build", Request: handlerstest.Request("ls")}, want: "its hash is", field: "shown_request"},
		"a command in place of an edit":    {permission: "per_3", shown: ShownRequest{Command: "ls"}, want: "it is for edit, not for a command", field: "shown_command"},
		"a command that begins the same":   {permission: "per_2", shown: ShownRequest{Command: "rm -rf"}, want: "its command is", field: "shown_command"},
		"a command that differs in blanks": {permission: "per_1", shown: ShownRequest{Command: "ls "}, want: "its command is", field: "shown_command"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			for _, decision := range []events.Decision{events.Authorized, events.Denied} {
				s := NewState()
				handlerstest.Given(t, s, facts...)
				d, _, err := s.Decide(Decide{Chat: "c1", Permission: c.permission, Decision: decision, ShownRequest: c.shown})
				if c.want == "" {
					is.NoErr(err)
					is.Equal(d.(events.PermissionDecided).Decision, decision)
					continue
				}
				is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
				expect.Contains(t, err.Error(), c.want)
				is.Equal(err.(handlers.Refused).Field, c.field)
			}
		})
	}
}

func TestDecisionCarriesWhatThePersonChanged(t *testing.T) {
	abort := handlerstest.Fact{By: handlerstest.Alice, Data: events.AbortRequested{}}
	given := func(t *testing.T, facts ...handlerstest.Fact) *State {
		s := NewState()
		handlerstest.Given(t, s, append([]handlerstest.Fact{handlerstest.Bash("per_1", "ls"),
			{By: events.ActorPolicy, Data: events.PermissionReferred{Permission: "per_1", Cwd: "/w"}}}, facts...)...)
		return s
	}
	edit := handlerstest.Permission("per_2", "ses_1", "call_2", "edit", []string{"a"},
		map[string]string{"filepath": "/w/a"})
	for name, c := range map[string]struct {
		given []handlerstest.Fact
		when  Decide
		then  handlers.Code
		want  string
	}{
		"edited":                       {when: Decide{Permission: "per_1", Decision: events.Authorized, Edited: "ls -l"}},
		"an edit of a file":            {given: []handlerstest.Fact{edit}, when: Decide{Permission: "per_2", Decision: events.Authorized, Edited: "ls -l"}, then: handlers.Invalid, want: "not for a command"},
		"after its turn was aborted":   {given: []handlerstest.Fact{abort}, when: Decide{Permission: "per_1", Decision: events.Authorized}, then: handlers.Conflict, want: "its turn was aborted"},
		"denied after that":            {given: []handlerstest.Fact{abort}, when: Decide{Permission: "per_1", Decision: events.Denied}},
		"after another was aborted":    {given: []handlerstest.Fact{{By: handlerstest.Alice, Data: events.AbortRequested{Session: "ses_2"}}}, when: Decide{Permission: "per_1", Decision: events.Authorized}},
		"forgotten before the abort":   {given: []handlerstest.Fact{{Data: events.PermissionInterrupted{Permission: "per_1"}}, abort}, when: Decide{Permission: "per_1", Decision: events.Authorized}},
		"an edit of what was approved": {given: []handlerstest.Fact{handlerstest.Decided("per_1", "ls", events.Authorized)}, when: Decide{Permission: "per_1", Decision: events.Authorized, Edited: "ls -l"}, then: handlers.Conflict, want: "decided already"},
		"no edit of what was approved": {given: []handlerstest.Fact{handlerstest.Decided("per_1", "ls", events.Authorized)}, when: Decide{Permission: "per_1", Decision: events.Authorized, Edited: "ls"}},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			c.when.Chat = "c1"
			c.when.Client = events.Client{Device: "Phone/1"}
			d, _, err := given(t, c.given...).Decide(c.when)
			is.Equal(handlerstest.Refusal(t, err), c.then)
			if err != nil {
				expect.Contains(t, err.Error(), c.want)
				return
			}
			if d != nil {
				is.Equal(d, events.PermissionDecided{
					Permission: "per_1", Decision: c.when.Decision, Session: "ses_1", Call: "call_per_1", Type: "bash", Command: "ls", Request: handlerstest.Request("ls"),
					Cwd: "/w", Edited: c.when.Edited, Client: c.when.Client,
				})
			}
		})
	}
	is := is.New(t)
	d, _, err := given(t).Decide(Decide{Chat: "c1", Permission: "per_1", Decision: events.Authorized, Edited: "ls"})
	is.NoErr(err)
	is.Equal(d.(events.PermissionDecided).Edited, "") // the same is no edit
}

func TestBadDecisionsAreRefused(t *testing.T) {
	secret := secret.NewRedactor(handlerstest.Canary)
	for name, c := range map[string]struct {
		when Decide
		want string // "" is taken
	}{
		"an hour":             {Decide{Decision: events.Authorized, For: "1h"}, ""},
		"the longest":         {Decide{Decision: events.Authorized, Edited: strings.Repeat("x", wire.MaxCommand)}, ""},
		"one byte more":       {Decide{Decision: events.Authorized, Edited: strings.Repeat("x", wire.MaxCommand+1)}, "the limit is 122880"},
		"blank":               {Decide{Decision: events.Authorized, Edited: " \n\t"}, "empty"},
		"NUL":                 {Decide{Decision: events.Authorized, Edited: "a\x00b"}, "without NUL"},
		"not UTF-8":           {Decide{Decision: events.Authorized, Edited: "a\xff"}, "UTF-8"},
		"a secret":            {Decide{Decision: events.Authorized, Edited: "login " + handlerstest.Canary}, "contains a secret"},
		"an edited denial":    {Decide{Decision: events.Denied, Edited: "ls"}, "a denial"},
		"a denial for a time": {Decide{Decision: events.Denied, For: "1h"}, "a denial"},
		"no time":             {Decide{Decision: events.Authorized, For: "soon"}, "such as 30m"},
		"no time at all":      {Decide{Decision: events.Authorized, For: "0s"}, "such as 30m"},
		"back in time":        {Decide{Decision: events.Authorized, For: "-1h"}, "such as 30m"},
		"undecided":           {Decide{Decision: "maybe"}, "want \"authorized\" or \"denied\""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			c.when.Chat = "c1"
			err := c.when.check(secret)
			is.Equal(err != nil, c.want != "")
			if err != nil {
				is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
				expect.Contains(t, err.Error(), c.want)
			}
		})
	}
}

func TestWhatAPersonDecidedIsSaidAgain(t *testing.T) {
	is := is.New(t)
	s := NewState()
	handlerstest.Given(t, s, handlerstest.Bash("per_1", "ls"), handlerstest.Decided("per_1", "ls", events.Authorized),
		handlerstest.Replied("per_1"))
	d, seq, err := s.Decide(Decide{Chat: "c1", Permission: "per_1", Decision: events.Authorized, Reason: " "})
	is.NoErr(err)
	is.Equal(d, nil)
	is.Equal(seq, uint64(2))
}

func TestGrantIsForTheSameRequestAndOnce(t *testing.T) {
	lost := handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_1"}}
	here := handlerstest.Approved(events.PermissionDecided{Cwd: "/w"})
	used := handlerstest.Fact{By: handlerstest.Alice, Data: events.PermissionDecided{Permission: "per_2",
		Decision: events.Authorized, ApprovalOf: "per_1", Request: handlerstest.Request("ls")}}
	for name, c := range map[string]struct {
		given []handlerstest.Fact
		grant string
	}{
		"interrupted, authorized": {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, here}, "per_1"},
		"for no known directory":  {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, handlerstest.Decided("per_1", "ls", events.Authorized)}, ""},
		"not interrupted":         {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), here}, ""},
		"not decided":             {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost}, ""},
		"denied":                  {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, handlerstest.Decided("per_1", "ls", events.Denied)}, ""},
		"another request":         {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls "), lost, handlerstest.Decided("per_1", "ls ", events.Authorized)}, ""},
		"used":                    {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, here, handlerstest.Bash("per_2", "ls"), used}, ""},
		"expired":                 {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, {Data: events.PermissionExpired{Permission: "per_1"}}}, ""},
		"for a time that is over": {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, handlerstest.Approved(events.PermissionDecided{Expires: time.Unix(1, 0)})}, ""},
		"aborted since":           {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, here, {By: handlerstest.Alice, Data: events.AbortRequested{}}}, ""},
		"aborted before":          {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, {By: handlerstest.Alice, Data: events.AbortRequested{}}, here}, "per_1"},
		"reverted since":          {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, here, {By: handlerstest.Alice, Data: events.RevertRequested{}}}, ""},
		"a new turn since":        {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, here, {By: handlerstest.Alice, Data: events.MessageSubmitted{}}}, ""},
		"resumed since":           {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, here, {Data: events.MessageSubmitted{Resumes: "per_1"}}}, "per_1"},
		"run since":               {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, here, {Data: events.ExecRequested{Permission: "per_1", Exec: "x1"}}}, ""},
		"for another directory":   {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, handlerstest.Approved(events.PermissionDecided{Cwd: "/other"})}, ""},
		"for this directory":      {[]handlerstest.Fact{handlerstest.Bash("per_1", "ls"), lost, here}, "per_1"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := NewState()
			handlerstest.Given(t, s, c.given...)
			outcome, ok := s.grant(handlerstest.Request("ls"), "/w", nil, time.Now())
			is.Equal(ok, c.grant != "")
			if ok {
				is.Equal(outcome.Decided.Permission, c.grant)
				is.Equal(outcome.By, handlerstest.Alice)
			}
		})
	}
}

func TestRequestOfAnAbortedTurnIsNotGranted(t *testing.T) {
	is := is.New(t)
	s := NewState()
	lost, here := handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_1"}},
		handlerstest.Approved(events.PermissionDecided{Cwd: "/w"})
	handlerstest.Given(t, s, handlerstest.Bash("per_1", "ls"), lost, handlerstest.Bash("per_2", "ls"),
		handlerstest.Fact{By: handlerstest.Alice, Data: events.AbortRequested{}}, here)
	request := events.PermissionRequest{ID: "per_2", SessionID: "ses_1", Permission: "bash", Patterns: []string{"ls"},
		Metadata: []byte(`{"command":"ls"}`)}
	all, err := s.conclude("c1", NewEvaluation(request, false, "/w", policy.Verdict{Action: policy.Allow}), time.Now())
	is.NoErr(err)
	is.Equal(len(all), 1)
	is.Equal(all[0].Subject.Kind, events.PermissionReferred{}.Kind())
}

func TestRequestOverTheAPIIsNotTakenForTheSameIDOfOpenCode(t *testing.T) {
	is := is.New(t)
	s := NewState()
	handlerstest.Given(t, s, handlerstest.Bash("strange", "make"),
		handlerstest.Fact{By: handlerstest.Alice, Data: handlerstest.Requested("strange", "git status")})
	is.Equal(s.requests["strange"].Command, "make")
	is.True(!s.requests["strange"].ViaAPI)
}

// One request at which the policy itself fails must not stop all.
func TestRequestAtWhichThePolicyFailsIsForAPerson(t *testing.T) {
	is := is.New(t)
	v := judge(policy.Defaults, policy.Input{
		Type: "read", Patterns: []string{"a"}, Path: "/a", Root: "/", Cwd: "/", Resolve: func(string) (string, bool) { panic("a bug") },
	})
	is.Equal(v.Action, policy.AskPerson)
	is.Equal(v.Reason, "the policy failed to read it: a bug")
}
