package chat

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

func TestUpdateChat(t *testing.T) {
	created := handlerstest.Fact{Data: events.ChatCreated{Title: "first", User: "alice", Engine: "local"}}
	updated := handlerstest.Fact{Cause: "cmd1", Data: events.ChatUpdated{Title: new("second"), Archived: new(true),
		Tags: new("a,b")}}
	deleted := handlerstest.Fact{Data: events.Deleted{}}
	for name, c := range map[string]struct {
		given []handlerstest.Fact
		when  Update
		then  events.Data // nil is no event
		seq   uint64
		code  handlers.Code
	}{
		"a title":               {given: []handlerstest.Fact{created}, when: Update{Title: new("second")}, then: events.ChatUpdated{Title: new("second")}},
		"what it was before":    {given: []handlerstest.Fact{created, updated}, when: Update{Title: new("first")}, then: events.ChatUpdated{Title: new("first")}},
		"only what changes":     {given: []handlerstest.Fact{created, updated}, when: Update{Title: new("second"), Archived: new(false)}, then: events.ChatUpdated{Archived: new(false)}},
		"everything":            {given: []handlerstest.Fact{created}, when: Update{Title: new("t"), Description: new("d"), Tags: new("x"), Agent: new("a"), User: new("bob"), Archived: new(true)}, then: events.ChatUpdated{Title: new("t"), Description: new("d"), Tags: new("x"), Agent: new("a"), User: new("bob"), Archived: new(true)}},
		"to nothing":            {given: []handlerstest.Fact{created, updated}, when: Update{Tags: new("")}, then: events.ChatUpdated{Tags: new("")}},
		"what is true":          {given: []handlerstest.Fact{created}, when: Update{Title: new("first"), User: new("alice"), Description: new(""), Archived: new(false)}, seq: 1},
		"what has become true":  {given: []handlerstest.Fact{created, updated}, when: Update{Title: new("second"), Tags: new("a,b")}, seq: 2},
		"nothing":               {given: []handlerstest.Fact{created, updated}, when: Update{}, seq: 2},
		"again, after others":   {given: []handlerstest.Fact{created, updated, {Data: events.ChatUpdated{Title: new("third")}}}, when: Update{Command: handlers.Command{ID: "cmd1"}, Title: new("second")}, seq: 2},
		"a chat that is none":   {when: Update{Title: new("x")}, code: handlers.NotFound},
		"a deleted chat":        {given: []handlerstest.Fact{created, deleted}, when: Update{Title: new("x")}, code: handlers.NotFound},
		"a deleted chat, as is": {given: []handlerstest.Fact{created, deleted}, when: Update{Title: new("first")}, code: handlers.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := &chatState{}
			handlerstest.Given(t, s, c.given...)
			d, seq, err := s.update(c.when)
			is.Equal(handlerstest.Refusal(t, err), c.code)
			is.Equal(d, c.then)
			is.Equal(seq, c.seq)
		})
	}
}

func TestForkTitleIsCutBetweenLetters(t *testing.T) {
	is := is.New(t)
	is.Equal(forkTitle("a"), "a (fork)")
	is.Equal(forkTitle(strings.Repeat("ä", 250)), strings.Repeat("ä", 246)+" (fork)")
}

func TestCheckParts(t *testing.T) {
	text := func(s string) events.Part { return events.Part{Type: "text", Text: s} }
	file := func(mime, url string) []events.Part { return []events.Part{{Type: "file", Mime: mime, URL: url}} }
	for name, c := range map[string]struct {
		parts []events.Part
		want  string // "" is taken
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
			err := CheckParts(c.parts)
			is.Equal(err != nil, c.want != "")
			if err != nil {
				is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
				is.Equal(err.(handlers.Refused).Field, "parts")
				expect.Contains(t, err.Error(), c.want)
			}
		})
	}
}
