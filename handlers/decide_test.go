package handlers

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/expect"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/wire"
)

// What every decision does, without a log: given what happened, when a command is given, then what comes of it.

// decided is a person's decision on an ask of askBash.
func decided(id, command string, d events.Decision) fact {
	return fact{by: alice, cause: "cmd_" + id, data: events.PermissionDecided{
		Permission: id, Decision: d, Session: "ses_1", Call: "call_" + id, Type: "bash", Command: command, Request: request(command),
	}}
}

// approved is a person's approval of ls, the ask per_1, as d says.
func approved(d events.PermissionDecided) fact {
	d.Permission, d.Decision, d.Session, d.Call, d.Type, d.Command, d.Request = "per_1", events.Authorized, "ses_1", "call_per_1", "bash", "ls", request("ls")
	return fact{by: alice, data: d}
}

// request is the hash of an ask for a command.
func request(command string) string {
	return events.PermissionAsk{Permission: "bash", Patterns: []string{command}, Metadata: []byte(`{"command":"` + command + `"}`)}.Request()
}

func TestDecidePermission(t *testing.T) {
	authorize := DecidePermission{Chat: "c1", Permission: "per_1", Decision: events.Authorized}
	for name, c := range map[string]struct {
		given []fact
		when  DecidePermission
		then  Code // "" is decided
		says  string
	}{
		"an open ask":             {given: []fact{askBash("per_1", "ls")}, when: authorize},
		"an interrupted ask":      {given: []fact{askBash("per_1", "ls"), {data: events.PermissionInterrupted{Permission: "per_1"}}}, when: authorize},
		"beside another decision": {given: []fact{askBash("per_1", "ls"), askBash("per_2", "ls"), decided("per_2", "ls", events.Denied)}, when: authorize},
		"nothing asked":           {when: authorize, then: NotFound, says: "no permission ask per_1"},
		"another ask":             {given: []fact{askBash("per_2", "ls")}, when: authorize, then: NotFound},
		"authorized by a rule":    {given: []fact{askBash("per_1", "ls"), {by: events.ActorPolicy, data: decided("per_1", "ls", events.Authorized).data}}, when: authorize, then: Conflict, says: "authorized by policy"},
		"for another reason":      {given: []fact{askBash("per_1", "ls"), decided("per_1", "ls", events.Authorized)}, when: DecidePermission{Chat: "c1", Permission: "per_1", Decision: events.Authorized, Reason: "why not"}, then: Conflict, says: "authorized by user:alice"},
		"denied before":           {given: []fact{askBash("per_1", "ls"), decided("per_1", "ls", events.Denied)}, when: authorize, then: Conflict, says: "denied by user:alice"},
		"expired":                 {given: []fact{askBash("per_1", "ls"), {data: events.PermissionExpired{Permission: "per_1", Reason: "its turn is over"}}}, when: authorize, then: Conflict, says: "its turn is over"},
		"answered in OpenCode":    {given: []fact{askBash("per_1", "ls"), replied("per_1")}, when: authorize, then: Conflict, says: "answered in OpenCode: once"},
		"OpenCode echoed": {
			given: []fact{askBash("per_1", "ls"), decided("per_1", "ls", events.Denied), replied("per_1")}, when: authorize, then: Conflict, says: "denied by user:alice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newPermissions()
			given(t, s, c.given...)
			d, _, err := s.decide(c.when)
			is.Equal(refusal(t, err), c.then)
			if c.then != "" {
				expect.Contains(t, err.Error(), c.says)
				is.Equal(d, nil)
				return
			}
			is.Equal(d, events.PermissionDecided{
				Permission: "per_1", Decision: events.Authorized, Session: "ses_1", Call: "call_per_1", Type: "bash", Command: "ls", Request: request("ls"),
			})
		})
	}
}

func TestADecisionIsOnlyAboutTheRequestThatWasShown(t *testing.T) {
	facts := []fact{askBash("per_1", "ls"), askBash("per_2", "rm -rf build"), asks("per_3", "ses_1", "call_3", "edit", []string{"a"}, map[string]string{"filepath": "/w/a"})}
	for name, c := range map[string]struct {
		permission string
		shown      Shown
		says       string // of the refusal; "" is decided
		field      string
	}{
		"nothing is said to be shown":      {permission: "per_2"},
		"the command":                      {permission: "per_2", shown: Shown{Command: "rm -rf build"}},
		"the hash":                         {permission: "per_2", shown: Shown{Request: request("rm -rf build")}},
		"both":                             {permission: "per_1", shown: Shown{Command: "ls", Request: request("ls")}},
		"another command":                  {permission: "per_2", shown: Shown{Command: "ls"}, says: `Request per_2 is not the one that was shown: its command is "rm -rf build". Nothing was decided.`, field: "shown_command"},
		"another hash":                     {permission: "per_2", shown: Shown{Request: request("ls")}, says: "Request per_2 is not the one that was shown: its hash is " + request("rm -rf build"), field: "shown_request"},
		"the command with another hash":    {permission: "per_2", shown: Shown{Command: "rm -rf build", Request: request("ls")}, says: "its hash is", field: "shown_request"},
		"a command in place of an edit":    {permission: "per_3", shown: Shown{Command: "ls"}, says: "it is for edit, not for a command", field: "shown_command"},
		"a command that begins the same":   {permission: "per_2", shown: Shown{Command: "rm -rf"}, says: "its command is", field: "shown_command"},
		"a command that differs in blanks": {permission: "per_1", shown: Shown{Command: "ls "}, says: "its command is", field: "shown_command"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			for _, decision := range []events.Decision{events.Authorized, events.Denied} {
				s := newPermissions()
				given(t, s, facts...)
				d, _, err := s.decide(DecidePermission{Chat: "c1", Permission: c.permission, Decision: decision, Shown: c.shown})
				if c.says == "" {
					is.NoErr(err)
					is.Equal(d.(events.PermissionDecided).Decision, decision)
					continue
				}
				is.Equal(refusal(t, err), Conflict)
				expect.Contains(t, err.Error(), c.says)
				is.Equal(err.(Refused).Field, c.field)
			}
		})
	}
}

func TestDecisionCarriesWhatThePersonChanged(t *testing.T) {
	abort := fact{by: alice, data: events.AbortRequested{}}
	given := func(t *testing.T, facts ...fact) *permissions {
		s := newPermissions()
		given(t, s, append([]fact{askBash("per_1", "ls"), {by: events.ActorPolicy, data: events.PermissionReferred{Permission: "per_1", Cwd: "/w"}}}, facts...)...)
		return s
	}
	edit := asks("per_2", "ses_1", "call_2", "edit", []string{"a"}, map[string]string{"filepath": "/w/a"})
	for name, c := range map[string]struct {
		given []fact
		when  DecidePermission
		then  Code
		says  string
	}{
		"edited":                       {when: DecidePermission{Permission: "per_1", Decision: events.Authorized, Edited: "ls -l"}},
		"an edit of a file":            {given: []fact{edit}, when: DecidePermission{Permission: "per_2", Decision: events.Authorized, Edited: "ls -l"}, then: Invalid, says: "not for a command"},
		"after its turn was aborted":   {given: []fact{abort}, when: DecidePermission{Permission: "per_1", Decision: events.Authorized}, then: Conflict, says: "its turn was aborted"},
		"denied after that":            {given: []fact{abort}, when: DecidePermission{Permission: "per_1", Decision: events.Denied}},
		"after another was aborted":    {given: []fact{{by: alice, data: events.AbortRequested{Session: "ses_2"}}}, when: DecidePermission{Permission: "per_1", Decision: events.Authorized}},
		"forgotten before the abort":   {given: []fact{{data: events.PermissionInterrupted{Permission: "per_1"}}, abort}, when: DecidePermission{Permission: "per_1", Decision: events.Authorized}},
		"an edit of what was approved": {given: []fact{decided("per_1", "ls", events.Authorized)}, when: DecidePermission{Permission: "per_1", Decision: events.Authorized, Edited: "ls -l"}, then: Conflict, says: "settled already"},
		"no edit of what was approved": {given: []fact{decided("per_1", "ls", events.Authorized)}, when: DecidePermission{Permission: "per_1", Decision: events.Authorized, Edited: "ls"}},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			c.when.Chat = "c1"
			c.when.Client = events.Client{Device: "Phone/1"}
			d, _, err := given(t, c.given...).decide(c.when)
			is.Equal(refusal(t, err), c.then)
			if err != nil {
				expect.Contains(t, err.Error(), c.says)
				return
			}
			if d != nil {
				is.Equal(d, events.PermissionDecided{
					Permission: "per_1", Decision: c.when.Decision, Session: "ses_1", Call: "call_per_1", Type: "bash", Command: "ls", Request: request("ls"),
					Cwd: "/w", Edited: c.when.Edited, Client: c.when.Client,
				})
			}
		})
	}
	is := is.New(t)
	d, _, err := given(t).decide(DecidePermission{Chat: "c1", Permission: "per_1", Decision: events.Authorized, Edited: "ls"})
	is.NoErr(err)
	is.Equal(d.(events.PermissionDecided).Edited, "") // the same is no edit
}

func TestBadDecisionsAreRefused(t *testing.T) {
	secret := secret.NewRedactor(canary)
	for name, c := range map[string]struct {
		when DecidePermission
		says string // "" is taken
	}{
		"an hour":             {DecidePermission{Decision: events.Authorized, For: "1h"}, ""},
		"the longest":         {DecidePermission{Decision: events.Authorized, Edited: strings.Repeat("x", wire.MaxCommand)}, ""},
		"one byte more":       {DecidePermission{Decision: events.Authorized, Edited: strings.Repeat("x", wire.MaxCommand+1)}, "the limit is 122880"},
		"blank":               {DecidePermission{Decision: events.Authorized, Edited: " \n\t"}, "empty"},
		"NUL":                 {DecidePermission{Decision: events.Authorized, Edited: "a\x00b"}, "without NUL"},
		"not UTF-8":           {DecidePermission{Decision: events.Authorized, Edited: "a\xff"}, "UTF-8"},
		"a secret":            {DecidePermission{Decision: events.Authorized, Edited: "login " + canary}, "holds a secret"},
		"an edited denial":    {DecidePermission{Decision: events.Denied, Edited: "ls"}, "a denial"},
		"a denial for a time": {DecidePermission{Decision: events.Denied, For: "1h"}, "a denial"},
		"no time":             {DecidePermission{Decision: events.Authorized, For: "soon"}, "such as 30m"},
		"no time at all":      {DecidePermission{Decision: events.Authorized, For: "0s"}, "such as 30m"},
		"back in time":        {DecidePermission{Decision: events.Authorized, For: "-1h"}, "such as 30m"},
		"undecided":           {DecidePermission{Decision: "maybe"}, "want \"authorized\" or \"denied\""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			c.when.Chat = "c1"
			err := c.when.check(secret)
			is.Equal(err != nil, c.says != "")
			if err != nil {
				is.Equal(refusal(t, err), Invalid)
				expect.Contains(t, err.Error(), c.says)
			}
		})
	}
}

func TestWhatAPersonDecidedIsSaidAgain(t *testing.T) {
	is := is.New(t)
	s := newPermissions()
	given(t, s, askBash("per_1", "ls"), decided("per_1", "ls", events.Authorized), replied("per_1"))
	d, seq, err := s.decide(DecidePermission{Chat: "c1", Permission: "per_1", Decision: events.Authorized, Reason: " "})
	is.NoErr(err)
	is.Equal(d, nil)
	is.Equal(seq, uint64(2))
}

func TestGrantIsForTheSameRequestAndOnce(t *testing.T) {
	lost := fact{data: events.PermissionInterrupted{Permission: "per_1"}}
	here := approved(events.PermissionDecided{Cwd: "/w"})
	used := fact{by: alice, data: events.PermissionDecided{Permission: "per_2", Decision: events.Authorized, Grant: "per_1", Request: request("ls")}}
	for name, c := range map[string]struct {
		given []fact
		grant string
	}{
		"interrupted, authorized": {[]fact{askBash("per_1", "ls"), lost, here}, "per_1"},
		"for no known directory":  {[]fact{askBash("per_1", "ls"), lost, decided("per_1", "ls", events.Authorized)}, ""},
		"not interrupted":         {[]fact{askBash("per_1", "ls"), here}, ""},
		"not decided":             {[]fact{askBash("per_1", "ls"), lost}, ""},
		"denied":                  {[]fact{askBash("per_1", "ls"), lost, decided("per_1", "ls", events.Denied)}, ""},
		"another request":         {[]fact{askBash("per_1", "ls "), lost, decided("per_1", "ls ", events.Authorized)}, ""},
		"used":                    {[]fact{askBash("per_1", "ls"), lost, here, askBash("per_2", "ls"), used}, ""},
		"expired":                 {[]fact{askBash("per_1", "ls"), lost, {data: events.PermissionExpired{Permission: "per_1"}}}, ""},
		"for a time that is over": {[]fact{askBash("per_1", "ls"), lost, approved(events.PermissionDecided{Expires: time.Unix(1, 0)})}, ""},
		"aborted since":           {[]fact{askBash("per_1", "ls"), lost, here, {by: alice, data: events.AbortRequested{}}}, ""},
		"aborted before":          {[]fact{askBash("per_1", "ls"), lost, {by: alice, data: events.AbortRequested{}}, here}, "per_1"},
		"for another directory":   {[]fact{askBash("per_1", "ls"), lost, approved(events.PermissionDecided{Cwd: "/other"})}, ""},
		"for this directory":      {[]fact{askBash("per_1", "ls"), lost, here}, "per_1"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newPermissions()
			given(t, s, c.given...)
			how, ok := s.grant(request("ls"), "/w", nil, time.Now())
			is.Equal(ok, c.grant != "")
			if ok {
				is.Equal(how.decided.Permission, c.grant)
				is.Equal(how.by, alice)
			}
		})
	}
}

func TestAskOfAnAbortedTurnIsNotGranted(t *testing.T) {
	is := is.New(t)
	s := newPermissions()
	lost, here := fact{data: events.PermissionInterrupted{Permission: "per_1"}}, approved(events.PermissionDecided{Cwd: "/w"})
	given(t, s, askBash("per_1", "ls"), lost, askBash("per_2", "ls"), fact{by: alice, data: events.AbortRequested{}}, here)
	ask := events.PermissionAsk{ID: "per_2", SessionID: "ses_1", Permission: "bash", Patterns: []string{"ls"}, Metadata: []byte(`{"command":"ls"}`)}
	all, err := s.conclude("c1", foundAbout(ask, false, "/w", policy.Verdict{Action: policy.Allow}), time.Now())
	is.NoErr(err)
	is.Equal(len(all), 1)
	is.Equal(all[0].Subject.Kind, events.PermissionReferred{}.Kind())
}

func TestAuthorizedIsExactlyThisCommand(t *testing.T) {
	asked := []fact{askBash("per_1", "ls -l"), askBash("per_2", "rm x"), askBash("per_3", "id")}
	decisions := []fact{decided("per_1", "ls -l", events.Authorized), decided("per_2", "rm x", events.Denied)}
	edit := fact{by: alice, data: events.PermissionDecided{Permission: "per_4", Decision: events.Authorized, Session: "ses_1", Call: "call_4", Type: "edit", Command: "ls -l"}}
	for name, c := range map[string]struct {
		session, call, command string
		then                   Code
		says                   string
	}{
		"as decided":        {"ses_1", "call_per_1", "ls -l", "", ""},
		"a byte more":       {"ses_1", "call_per_1", "ls -l ", Conflict, "not the one that was authorized"},
		"a byte less":       {"ses_1", "call_per_1", "ls -", Conflict, "not the one"},
		"another case":      {"ses_1", "call_per_1", "LS -l", Conflict, "not the one"},
		"another call":      {"ses_1", "call_per_9", "ls -l", NotFound, "no permission was decided for call call_per_9"},
		"another session":   {"ses_2", "call_per_1", "ls -l", NotFound, "of session ses_2"},
		"no call":           {"ses_1", "", "ls -l", NotFound, ""},
		"denied":            {"ses_1", "call_per_2", "rm x", Conflict, "denied by user:alice"},
		"undecided":         {"ses_1", "call_per_3", "id", NotFound, ""},
		"of another tool":   {"ses_1", "call_4", "ls -l", NotFound, ""},
		"nothing as nobody": {"", "", "", NotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newExecState()
			given(t, s, append(append(asked, decisions...), edit)...)
			how, err := s.authorized(wire.Request{Session: c.session, Call: c.call, Command: c.command}, time.Now())
			is.Equal(refusal(t, err), c.then)
			if err != nil {
				expect.Contains(t, err.Error(), c.says)
				return
			}
			is.Equal(how.decided.Permission, "per_1")
		})
	}
}

func TestCheckParts(t *testing.T) {
	text := func(s string) events.Part { return events.Part{Type: "text", Text: s} }
	file := func(mime, url string) []events.Part { return []events.Part{{Type: "file", Mime: mime, URL: url}} }
	for name, c := range map[string]struct {
		parts []events.Part
		says  string // "" is taken
	}{
		"text":              {[]events.Part{text("hi")}, ""},
		"file":              {file("text/plain", "data:text/plain;base64,aGk="), ""},
		"file of nothing":   {file("text/plain", "data:text/plain;base64,"), ""},
		"file with charset": {file("text/plain", "data:text/plain;charset=utf-8;base64,aGk="), ""},
		"file in capitals":  {file("IMAGE/png", "data:image/PNG;base64,aGk="), ""},
		"file of the host":  {file("text/plain", "file:///etc/passwd"), "parts[0]: url: want data:"},
		"FILE of the host":  {file("text/plain", "FILE:///etc/passwd"), "parts[0]: url: want data:"},
		"file behind blank": {file("text/plain", " file:///etc/passwd"), "parts[0]: url: want data:"},
		"file behind tab":   {file("text/plain", "\tdata:text/plain;base64,aGk="), "parts[0]: url: want data:"},
		"file with base64":  {file("text/plain", "file:///etc/passwd?;base64,aGk="), "parts[0]: url: want data:"},
		"DATA":              {file("text/plain", "DATA:text/plain;base64,aGk="), "parts[0]: url: want data:"},
		"file of the net":   {file("text/plain", "http://localhost:4096/config"), "parts[0]: url: want data:"},
		"file over TLS":     {file("text/plain", "https://example.org/a"), "parts[0]: url: want data:"},
		"relative file":     {file("text/plain", "a.txt"), "parts[0]: url: want data:"},
		"percent encoding":  {file("text/plain", "data:text/plain,hi"), "parts[0]: url: want data:"},
		"bad base64":        {file("text/plain", "data:text/plain;base64,a!"), "parts[0]: url: the content is not base64"},
		"base64 in lines":   {file("text/plain", "data:text/plain;base64,aG\nk="), "parts[0]: url: the content is not base64"},
		"no padding":        {file("text/plain", "data:text/plain;base64,aGk"), "parts[0]: url: the content is not base64"},
		"other mime":        {file("text/plain", "data:text/html;base64,aGk="), `parts[0]: mime: the url is of type "text/html", the file of type "text/plain"`},
		"directory":         {file("application/x-directory", "data:;base64,aGk="), "parts[0]: mime: the url is of type"},
		"mime of no sort":   {file("text", "data:text;base64,aGk="), "parts[0]: mime"},
		"second part":       {append(file("text/plain", "data:text/plain;base64,aGk="), file("text/plain", "file:///a")...), "parts[1]: url"},
		"text beside blank": {[]events.Part{text(" "), text("hi")}, ""},
		"largest":           {[]events.Part{text(strings.Repeat("x", MaxMessage-len(`[{"type":"text","text":""}]`)))}, ""},
		"one byte more":     {[]events.Part{text(strings.Repeat("x", 1+MaxMessage-len(`[{"type":"text","text":""}]`)))}, "the message is 1048577 bytes; the limit is 1048576"},
		"no parts":          {nil, "empty"},
		"blank":             {[]events.Part{text(" \n\t ")}, "empty"},
		"unknown type":      {[]events.Part{text("hi"), {Type: "video"}}, `parts[1]: unknown type "video"`},
		"no type":           {[]events.Part{{Text: "hi"}}, "parts[0]: unknown type"},
		"file without url":  {[]events.Part{{Type: "file", Mime: "a/b"}}, "parts[0]: a file needs mime and url"},
		"not UTF-8":         {[]events.Part{text("a\xff")}, "parts[0]: the text is not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			err := checkParts(c.parts)
			is.Equal(err != nil, c.says != "")
			if err != nil {
				is.Equal(refusal(t, err), Invalid)
				is.Equal(err.(Refused).Field, "parts")
				expect.Contains(t, err.Error(), c.says)
			}
		})
	}
}
