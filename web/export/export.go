// Package export writes a chat, as it was after an event, into files for people and programs outside: its events as
// JSON lines, its conversation as an HTML page, and its commands as asciinema recordings.
//
// Promises: a file shows what the pages and the API show to the same account, and no secret that they do not show. The
// HTML page loads nothing and runs no script. A recording holds the stored output. Its control sequences can neither
// write to the clipboard nor set the title of the window.
//
// It must not decide who may see what.
package export

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/pages/conversation"
	"pocketcoder/web/pages/requests"
	"pocketcoder/web/pages/site"
)

// Chat is a chat as it was after an event.
type Chat struct {
	Log   *log.Log
	ID    string
	At    uint64                    // sequence of the last event that counts
	Email func(actor string) string // of an account, "" for other actors
}

// EmailOf returns a function that returns the email of the account that an actor is, "" for any other actor. It looks
// each up once. An account that cannot be looked up has none.
func EmailOf(ctx context.Context, m *projections.Model) func(actor string) string {
	known := map[string]string{}
	return func(actor string) string {
		id, isUser := strings.CutPrefix(actor, events.UserActor(""))
		email, found := known[id]
		if !isUser || found {
			return email
		}
		_ = m.View(ctx, func(db dbx.Builder, _ uint64) error {
			return db.NewQuery("SELECT email FROM users WHERE id={:id}").WithContext(ctx).Bind(dbx.Params{"id": id}).Row(&email)
		})
		known[id] = email
		return email
	}
}

// JSONLines writes the events of the chat, each as CloudEvents JSON on a line of its own.
func (c Chat) JSONLines(ctx context.Context, w io.Writer) error {
	_, err := c.Log.Fold(ctx, events.ChatFilter(c.ID), 0, func(e events.Event) error {
		if e.Seq > c.At {
			return events.ErrStop
		}
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = w.Write(append(line, '\n'))
		return err
	})
	if errors.Is(err, events.ErrStop) {
		return nil
	}
	return err
}

// HTML writes the conversation as one HTML page with its style sheet.
func (c Chat) HTML(ctx context.Context, w io.Writer) error {
	return projections.MomentAt(ctx, c.Log, c.ID, c.At, func(db dbx.Builder, last events.Event) error {
		chats, err := timeline.Chats(ctx, db, "", []string{c.ID})
		if err != nil {
			return err
		}
		if len(chats) == 0 {
			return projections.ErrNoChat
		}
		return document(chats[0], last, c.entries(db)).Render(ctx, w)
	})
}

const windowMessages = 100

// entries renders the entries in windows, each before it reads the next one, so that a long chat takes little memory.
func (c Chat) entries(db dbx.Builder) templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) (err error) {
		for window := (timeline.Window{}); ; window.From = window.Before {
			if window.Before, err = timeline.WindowEnd(ctx, db, c.ID, window.From, windowMessages); err != nil {
				return err
			}
			all, err := timeline.Entries(ctx, db, c.ID, window, 0)
			if err != nil {
				return err
			}
			timeline.FillDeciders(all, c.Email)
			err = conversation.Entries(all, requests.FromReplay).Render(ctx, w)
			if err != nil || window.Before == 0 {
				return err
			}
		}
	})
}

// sheet is the style sheet of the pages.
func sheet() string {
	css, err := fs.ReadFile(site.Static, "app.css")
	if err != nil {
		panic(err) // the files are compiled in
	}
	return string(css)
}
