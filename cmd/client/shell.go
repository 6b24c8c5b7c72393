package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/coder/websocket"

	"pocketcoder/handlers"
	"pocketcoder/sandbox/wire"
	"pocketcoder/web/routes"
)

// Shell is a shell of a person's own in the sandbox of a chat.
type Shell struct {
	Chat     string
	Private  bool // its output is not recorded
	Terminal wire.Terminal
	Input    <-chan wire.Input
	Out      io.Writer
}

// ShellEnding is how a shell ended.
type ShellEnding struct {
	ExitCode int    `json:"exit_code"`
	Reason   string `json:"reason"` // why it did not end by itself; empty when it did
	Error    string `json:"error"`  // for a person
}

// RunShell opens a shell and returns how it ended.
func (s *System) RunShell(ctx context.Context, o Shell) (ending ShellEnding, err error) {
	query := url.Values{"cols": {fmt.Sprint(o.Terminal.Cols)}, "rows": {fmt.Sprint(o.Terminal.Rows)},
		"private": {fmt.Sprint(o.Private)}}
	if o.Terminal.Kind != "" {
		query.Set("term", o.Terminal.Kind)
	}
	header := http.Header{}
	s.setHeaders(header)
	path := "/api/chats/" + url.PathEscape(o.Chat) + "/shell?" + query.Encode()
	conn, answer, err := websocket.Dial(ctx, s.url+path, &websocket.DialOptions{HTTPClient: s.http, HTTPHeader: header})
	if err != nil {
		if answer == nil || answer.StatusCode < http.StatusBadRequest {
			return ending, err
		}
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
			if s.Account != "" {
				return ending, handlers.Refuse(handlers.NotFound, "Account %q may not open a shell in chat %s.", s.Account, o.Chat)
			}
		}
		return ending, refusalOf(answer)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(2 * routes.ShellWindow)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go sendInput(ctx, conn, o.Input)
	for taken := 0; ; {
		typ, body, err := conn.Read(ctx)
		if err != nil {
			return ending, fmt.Errorf("the connection to the shell is lost: %w", err)
		}
		if typ == websocket.MessageText {
			return ending, json.Unmarshal(body, &ending)
		}
		if _, err := o.Out.Write(body); err != nil {
			return ending, err
		}
		taken += len(body)
		if err := conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"taken":%d}`, taken)); err != nil {
			return ending, err
		}
	}
}

// sendInput sends what is typed, and new sizes of the terminal, until ctx ends.
func sendInput(ctx context.Context, conn *websocket.Conn, input <-chan wire.Input) {
	for {
		var in wire.Input
		select {
		case in = <-input:
		case <-ctx.Done():
			return
		}
		typ, body := websocket.MessageBinary, in.Data
		if in.Size != nil {
			typ, body = websocket.MessageText, fmt.Appendf(nil, `{"cols":%d,"rows":%d}`, in.Size.Cols, in.Size.Rows)
		}
		if conn.Write(ctx, typ, body) != nil {
			return
		}
	}
}
