package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"pocketcoder/projections"
)

const chatsUsage = `pocketcoder chats: list chats, the most recently active first.

  pocketcoder chats                 list 20 chats
  pocketcoder chats --limit 3
  pocketcoder chats --json          for scripts, with the number of requests that wait for a person
  pocketcoder chat h2k0x9c3v7m1q5z  open one of them

TURN names the side that must act: "you: 1 request" when a decision or an answer is needed, "you" when the assistant waits for a
message, "assistant" while it works. "pocketcoder requests" shows what is requested.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

// listedChat is a chat with the number of its requests that wait for a person.
type listedChat struct {
	projections.Chat
	Requests int `json:"requests"`
}

// chats lists the most recently active chats.
func (s *system) chats(ctx context.Context, limit int) ([]listedChat, error) {
	var rows []projections.Chat
	if err := s.query(ctx, "chats", map[string]any{"limit": limit, "offset": 0}, &rows); err != nil {
		return nil, err
	}
	pending, err := s.requests(ctx)
	if err != nil {
		return nil, err
	}
	waiting := map[string]int{}
	for _, r := range pending {
		waiting[r.Chat]++
	}
	all := make([]listedChat, 0, len(rows))
	for _, c := range rows {
		all = append(all, listedChat{c, waiting[c.ID]})
	}
	return all, nil
}

// turn names the side that must act: a person or the assistant.
func (c listedChat) turn() string {
	switch {
	case c.Requests == 1:
		return "you: 1 request"
	case c.Requests > 1:
		return fmt.Sprintf("you: %d requests", c.Requests)
	case c.Turn == projections.TurnUser:
		return "you"
	}
	return c.Turn
}

func runChats(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "chats", chatsUsage)
	data := dataFlag(fs, env)
	limit := fs.Int("limit", 20, "list at most this `number` of chats")
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := parse(fs, args, 0); err != nil {
		return err
	}
	if *limit < 1 {
		return wrongUsage(env, "chats: --limit must be at least 1, got %d", *limit)
	}
	s, err := connect(ctx, dataDir(*data))
	if err != nil {
		return err
	}
	defer s.close()
	chats, err := s.chats(ctx, *limit)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(env.stdout, chats)
	}
	return printChats(env.stdout, chats)
}

func printChats(w io.Writer, chats []listedChat) error {
	if len(chats) == 0 {
		_, err := fmt.Fprintln(w, "no chats yet; begin one with: pocketcoder chat")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHAT\tTURN\tLAST ACTIVE\tTITLE\tPREVIEW")
	for _, c := range chats {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", c.ID, c.turn(), localTime(c.LastActive), oneLine(c.Title, 30), oneLine(c.Preview, 60))
	}
	return t.Flush()
}

// localTime shows a row's time to the minute in this machine's time zone.
func localTime(s string) string {
	at, err := time.Parse(projections.TimeFormat, s)
	if err != nil {
		return s
	}
	return at.Local().Format("2006-01-02 15:04")
}

// indented is a value as JSON for a person, with a newline at its end.
func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

// printJSON writes a value as indented JSON.
func printJSON(w io.Writer, v any) error {
	body, err := indented(v)
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}

// wrongUsage says what was wrong with the arguments.
func wrongUsage(env environment, format string, args ...any) error {
	fmt.Fprintf(env.stderr, format+"\n", args...)
	return errUsage
}
