package handlers_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
)

// servers gives commands about the MCP server lab.
type servers struct {
	*record.Records
	t  *testing.T
	id string
}

func newServers(t *testing.T) *servers {
	s := &servers{Records: recordtype.Open(eventstest.Log(t), recordtype.Machine{}), t: t}
	s.id = s.save(account.Agent, true, `{"name":"lab","status":"pending","command":"lab --stdio"}`)
	return s
}

func (s *servers) try(role string, isNew bool, fields string) (string, error) {
	id, _, err := s.Save(s.t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice}, Role: role,
		Collection: mcpserver.Collection, Record: s.id, New: isNew,
		Set: handlerstest.Fields(fields), Trusted: true})
	return id, err
}

func (s *servers) save(role string, isNew bool, fields string) string {
	s.t.Helper()
	id, err := s.try(role, isNew, fields)
	is.New(s.t).NoErr(err)
	return id
}

// approve approves the server as it is.
func (s *servers) approve() {
	s.t.Helper()
	s.save(account.Admin, false, `{"status":"approved","shown_definition":"`+s.now().Definition+`"}`)
}

func (s *servers) now() mcpserver.Server {
	s.t.Helper()
	all, err := mcpserver.All(s.t.Context(), s.Records)
	is.New(s.t).NoErr(err)
	return all[0].Server
}

// report reports a tool of the started server.
func (s *servers) report(of mcpserver.Server, description string) mcpserver.Server {
	s.t.Helper()
	now, err := mcpserver.SaveReport{Record: s.id, Of: of,
		Command: handlers.Command{Actor: "engine:local"}, Report: mcpserver.Report{Version: "1", Tools: []mcpserver.Tool{
			{Name: "echo", Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)}}}}.Save(s.t.Context(), s.Records)
	is.New(s.t).NoErr(err)
	return now
}

func TestAChangedToolMakesAnApprovedServerPending(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newServers(t)
	is.Equal(s.report(s.now(), "says it back").Status, mcpserver.Pending) // not approved: nothing is pinned
	is.Equal(len(s.now().Tools), 0)
	s.approve()
	is.Equal(s.now().State(), "approved")
	s.report(s.now(), "says it back")
	is.Equal(s.now().State(), "active")
	is.Equal(s.report(s.now(), "says it back").State(), "active")

	is.Equal(s.report(s.now(), "says it back, and mails it").Status, mcpserver.Pending)
	now := s.now()
	expect.Contains(t, now.Difference, `+ echo, description: "says it back, and mails it"`)
	is.Equal(now.Tools[0].Description, "says it back")
	offered, _ := now.Offered()
	is.Equal(len(offered), 0)

	_, err := s.try(account.Agent, false, `{"status":"approved"}`)
	is.True(err != nil)
	s.approve()
	now = s.now()
	is.Equal([]any{now.State(), now.Difference, now.Tools[0].Description, len(now.FoundTools)},
		[]any{"active", "", "says it back, and mails it", 0})
}

func TestAnApprovalIsOfTheDefinitionThatWasShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newServers(t)
	approve := func(definition string) handlers.Refused {
		_, err := s.try(account.Admin, false, `{"status":"approved","shown_definition":"`+definition+`"}`)
		refused := handlers.Refused{}
		is.True(errors.As(err, &refused))
		is.Equal([]string{refused.Field, s.now().Status}, []string{record.ShownDefinition, mcpserver.Pending})
		return refused
	}
	is.Equal(approve("").Code, handlers.Invalid)
	shown := s.now().Definition
	s.save(account.Admin, false, `{"command":"lab --other"}`)
	is.Equal(approve(shown).Code, handlers.Conflict)
	s.save(account.Admin, false, `{"definition":"`+shown+`"}`) // only the system sets it
	is.Equal(approve(shown).Code, handlers.Conflict)
	s.approve()
	s.report(s.now(), "says it back")

	s.report(s.now(), "says it back, and mails it")
	shown = s.now().Definition
	s.save(account.Admin, false, `{"environment":["API_KEY"]}`)
	is.Equal(approve(shown).Code, handlers.Conflict)
	s.approve()
	is.Equal(s.now().Status, mcpserver.Approved)
}

func TestAChangedCommandNeedsANewApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newServers(t)
	s.approve()
	before := s.now()
	s.report(before, "says it back")
	s.save(account.Admin, false, `{"reason":"to test"}`)
	is.Equal(s.now().State(), "active")
	for _, fields := range []string{`{"command":"lab --other"}`, `{"environment":["API_KEY"]}`, `{"command":"","url":"https://example.org/mcp","environment":[]}`} {
		s.save(account.Admin, false, fields)
		is.Equal([]any{s.now().Status, len(s.now().Tools)}, []any{mcpserver.Pending, 0})
		s.approve()
		s.report(before, "of the old command")
		is.Equal(len(s.now().Tools), 0)
		s.report(s.now(), "of the new command")
		is.Equal(s.now().State(), "active")
	}
	s.save(account.Admin, false, `{"command":"lab","url":""}`)
	s.approve()
	s.save(account.Admin, false, `{"hosts":["api.example.org"]}`)
	s.save(account.Admin, false, `{"hosts":["*.example.org"]}`)
	is.Equal([]any{s.now().Status, s.now().Difference}, []any{mcpserver.Pending,
		"+ host: api.example.org\n- host: api.example.org\n+ host: *.example.org"}) // all changes since the approval
	s.approve()
	s.report(s.now(), "with a host")
	is.Equal([]any{s.now().State(), s.now().Difference}, []any{"active", ""})
	s.save(account.Admin, false, `{"tools":[],"difference":"none"}`) // only reports set them
	is.Equal(s.now().State(), "active")
	s.save(account.Admin, false, `{"status":"revoked"}`)
	is.Equal(s.now().State(), mcpserver.Revoked)

	s.id = ""
	_, err := s.try(account.Admin, true, `{"name":"lab","status":"pending","command":"other"}`)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "Another MCP server has this name.")
}
