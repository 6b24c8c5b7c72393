package mcp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/mcp"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
)

func TestOnlyTheRunningOpenCodeReportsWhatATitleCost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := open(t)
	f.Chats = &chat.Chats{Log: f.Records.Log}
	_, _, err := f.Chats.Create(t.Context(), chat.Create{Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1"})
	is.NoErr(err)
	send := func(method, header, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(f.url, mcp.Path)+mcp.TitlePath,
			strings.NewReader(body))
		is.NoErr(err)
		r.Header.Set("Authorization", header)
		resp, err := http.DefaultClient.Do(r)
		is.NoErr(err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	const title = `{"session":"ses_1","provider":"p","model":"m","cost":0.5,"input":10,"output":3}`
	for name, c := range map[string]struct {
		method, header, body string
		status               int
	}{
		"without the secret": {"POST", "Bearer other", title, http.StatusUnauthorized},
		"another method":     {"GET", f.Header, title, http.StatusBadRequest},
		"no JSON":            {"POST", f.Header, "{", http.StatusBadRequest},
		"too large":          {"POST", f.Header, title + strings.Repeat(" ", 20<<10), http.StatusBadRequest},
		"a negative cost":    {"POST", f.Header, strings.Replace(title, "0.5", "-0.5", 1), http.StatusBadRequest},
		"negative tokens":    {"POST", f.Header, strings.Replace(title, "10", "-10", 1), http.StatusBadRequest},
		"no model":           {"POST", f.Header, strings.Replace(title, `"m"`, `""`, 1), http.StatusBadRequest},
		"unknown session":    {"POST", f.Header, strings.Replace(title, "ses_1", "ses_2", 1), http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) { is.New(t).Equal(send(c.method, c.header, c.body), c.status) })
	}
	is.Equal(send("POST", f.Header, title), http.StatusOK)
	_, data := handlerstest.History(t, f.Records.Log, "c1")
	is.Equal(handlerstest.Of[events.TitleGenerated](data), []events.TitleGenerated{
		{Session: "ses_1", Provider: "p", Model: "m", Cost: 0.5, Input: 10, Output: 3}})
}
