package export

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/web/api"
	"pocketcoder/web/stream"
)

// Exports serves exports as downloads.
type Exports struct {
	API *api.Server
	Log *log.Log

	downloads stream.Slots
}

// maxDownloads is the largest number of exports that an account downloads at once.
const maxDownloads = 2

// take takes a slot for a download.
func (x *Exports) take(caller api.Caller) (release func(), err error) {
	return x.downloads.Acquire(caller, maxDownloads,
		"Two exports of this account are being downloaded. Wait for one to end.")
}

// format is a form of a file of a chat.
type format struct {
	Name  string // also the end of the file's name
	about string
	media string
	write func(Chat, context.Context, io.Writer) error
}

// Formats are the forms of a file of a chat.
var Formats = []format{
	{"html", "The conversation of a chat as an HTML page that needs nothing else.", "text/html", Chat.HTML},
	{"jsonl", "The events of a chat, each as CloudEvents JSON on a line.", "application/x-ndjson", Chat.JSONLines},
	{"cast", "The commands of a chat that have ended, as an asciinema recording.", castMedia, Chat.Cast},
}

const castMedia = "application/x-asciicast"

func (x *Exports) Routes() []api.Route {
	at := []api.Param{{Name: "at", Integer: true,
		About: "sequence of the last event that counts; the newest when absent"}}
	routes := []api.Route{
		{Method: "GET", Path: "/api/executions/{id}/cast", About: "A command that has ended, as an asciinema recording.", Access: api.Accounts, Media: castMedia, Serve: x.Execution},
	}
	for _, f := range Formats {
		routes = append(routes, api.Route{
			Method: "GET", Path: "/api/chats/{id}/export/" + f.Name, About: f.about, Access: api.Accounts, Query: at, Media: f.media, Serve: x.Chat(f),
		})
	}
	return routes
}

// Chat answers with a chat as a file.
func (x *Exports) Chat(f format) func(http.ResponseWriter, *http.Request, api.Caller) error {
	return func(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
		id := r.PathValue("id")
		if err := x.API.MayView(r.Context(), caller, "chats", id); err != nil && !caller.IsOperator {
			return err
		}
		at, err := x.at(r)
		if err != nil {
			return err
		}
		release, err := x.take(caller)
		if err != nil {
			return err
		}
		defer release()
		chat := Chat{Log: x.Log, ID: id, At: at, Email: EmailOf(r.Context(), x.API.Model)}
		return x.send(w, r, caller, f.media, "chat-"+id+"."+f.Name, func(ctx context.Context, w io.Writer) error {
			return f.write(chat, ctx, w)
		})
	}
}

// Execution answers with a command as an asciinema recording.
func (x *Exports) Execution(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	id := r.PathValue("id")
	if err := x.API.MayView(r.Context(), caller, "executions", id); err != nil {
		return err
	}
	run, found, err := x.API.Model.Execution(r.Context(), id)
	if err != nil {
		return err
	}
	if !found || run.Started == "" || run.Status == events.ExecutionRunning {
		return api.Problem{Status: http.StatusConflict, Message: "The command has not ended, or it did not run."}
	}
	release, err := x.take(caller)
	if err != nil {
		return err
	}
	defer release()
	return x.send(w, r, caller, castMedia, "command-"+id+".cast", func(ctx context.Context, w io.Writer) error {
		return writeExecution(ctx, x.Log, run, w)
	})
}

// at returns the sequence that the query asks for, by default the newest.
func (x *Exports) at(r *http.Request) (uint64, error) {
	last, err := x.Log.Last(r.Context())
	text := r.URL.Query().Get("at")
	if err != nil || text == "" {
		return last, err
	}
	at, err := strconv.ParseUint(text, 10, 64)
	if err != nil || at == 0 || at > last {
		return 0, api.BadField("at", "validation_invalid_value", "want the sequence of an event, from 1 to %d, got %q", last,
			api.Truncate(text, 40))
	}
	return at, nil
}

// send answers with a file in pieces. It computes what is before the first piece within the caller's share, so that a
// slow client does not keep the share. An error before the first piece is an answer of its own, a later one cuts the
// connection.
func (x *Exports) send(w http.ResponseWriter, r *http.Request, caller api.Caller, media, name string,
	write func(context.Context, io.Writer) error) error {
	give, err := x.API.AcquireQuerySlot(r.Context(), caller.Key())
	if err != nil {
		return err
	}
	give = sync.OnceFunc(give)
	defer give()
	f := &file{to: api.NewDeadlineWriter(w), begin: func() {
		give()
		asFile(w.Header(), media, name)
	}}
	err = write(r.Context(), f)
	if err == nil {
		err = f.flush()
	}
	switch {
	case err == nil:
		return nil
	case !f.begun:
		return err
	case r.Context().Err() == nil && !errors.Is(err, api.ErrGone):
		x.API.Logger.Error("export", "file", name, "err", err)
	}
	panic(http.ErrAbortHandler) // the one way to tell the client that what it has is not all
}

// asFile makes a browser save the answer under a name.
func asFile(h http.Header, media, name string) {
	h.Set("Content-Type", media)
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// file is an answer that begins with its first piece.
type file struct {
	to    *api.DeadlineWriter
	begin func()
	begun bool
	piece bytes.Buffer
}

func (f *file) Write(b []byte) (int, error) {
	f.piece.Write(b)
	if f.piece.Len() < api.WritePiece {
		return len(b), nil
	}
	return len(b), f.flush()
}

func (f *file) flush() error {
	if !f.begun {
		f.begin()
		f.begun = true
	}
	_, err := f.piece.WriteTo(f.to)
	return err
}
