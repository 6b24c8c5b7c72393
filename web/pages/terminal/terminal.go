// Package terminal serves the commands of a chat with what they print, the way to the ports that they serve, and a
// person's own shell.
//
// Promises: output is shown as text with its colours: no control sequence moves, hides or starts anything. A page
// shows a bounded number of commands, and of each a bounded part of the output. What a command prints appears while it
// runs.
//
// It must not decide what an account may see or reach: the rules of the API do.
package terminal

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// Terminal serves the commands of a chat.
type Terminal struct{ *site.Site }

// Handle adds the pages to a mux.
func (t Terminal) Handle(mux *http.ServeMux) {
	mux.Handle("GET /chats/{id}/terminal", t.Page(t.show))
	mux.Handle("GET /chats/{id}/terminal/live", t.Live(t.live))
	mux.Handle("GET /chats/{id}/ports/{port}", t.File(t.openPort))
	mux.Handle("GET /chats/{id}/shell", t.StyledPage(t.showShell))
	mux.Handle("GET /chats/{id}/shell/socket", t.File(t.Shells.Serve))
}

// maxExecutions is the number of executions that a page shows at once.
const maxExecutions = 30

// view is the executions of a chat, or those that changed, at one moment.
type view struct {
	chat       timeline.Chat
	pending    int // requests and questions that wait for a person, of all chats
	executions []execution
	before     int64 // position below which they are, 0 for the newest
	earlier    bool  // there are executions before them
	port       string
	seq        uint64
}

func (t Terminal) show(r *http.Request, caller api.Caller) (templ.Component, error) {
	before, err := site.PositionOf(r, "before")
	if err != nil {
		return nil, err
	}
	port, err := portOf(r)
	if err != nil {
		return nil, err
	}
	v, err := t.read(r.Context(), caller, r.PathValue("id"), func(db dbx.Builder, chat string) (all []execution,
		earlier bool, err error) {
		runs, earlier, err := timeline.LatestRuns(r.Context(), db, chat, before, maxExecutions)
		return executionsOf(runs), earlier, err
	})
	if err != nil {
		return nil, err
	}
	v.before, v.port = before, port
	t.readOutputs(r.Context(), v.executions)
	return page(caller, v), nil
}

// read returns a chat that the account may view, with executions.
func (t Terminal) read(ctx context.Context, caller api.Caller, chat string,
	executions func(dbx.Builder, string) ([]execution, bool, error)) (v view, err error) {
	err = t.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, seq uint64) (err error) {
		v.seq = seq
		if v.chat, err = t.Chat(ctx, db, caller, chat); err != nil {
			return err
		}
		waiting, err := t.Pending(ctx, db, caller)
		if err != nil {
			return err
		}
		v.pending = len(waiting)
		v.executions, v.earlier, err = executions(db, chat)
		return err
	})
	return v, err
}

// live follows the newest executions of a chat, and what they print.
func (t Terminal) live(r *http.Request, caller api.Caller) (site.Updates, []site.Source, error) {
	from, err := site.PositionOf(r, "from")
	if err != nil {
		return nil, nil, err
	}
	chat := r.PathValue("id")
	since, err := t.FragmentsSince(r.Context(), caller, chat, timeline.RunningSince)
	if err != nil {
		return nil, nil, err
	}
	var head site.Changed
	update := func(ctx context.Context, after uint64) ([]byte, uint64, error) {
		v, err := t.read(ctx, caller, chat, func(db dbx.Builder, chat string) ([]execution, bool, error) {
			runs, err := timeline.ChangedRuns(ctx, db, chat, from, after)
			return executionsOf(runs), false, err
		})
		if err != nil {
			return nil, 0, err
		}
		b, err := head.Render(ctx, site.RequestsLink(v.pending, ""))
		if err != nil {
			return nil, 0, err
		}
		elements := bytes.NewBuffer(b)
		t.readOutputs(ctx, v.executions)
		for _, x := range v.executions {
			if err := article(x).Render(ctx, elements); err != nil {
				return nil, 0, err
			}
		}
		return elements.Bytes(), v.seq, nil
	}
	return update, []site.Source{t.printed(chat, since)}, nil
}

// printed is the source of what running executions of a chat print. Shells draw on a screen, which no text shows.
func (t Terminal) printed(chat string, since time.Time) site.Source {
	sent := site.LiveOutput{}
	return t.Writing(since, events.ChatDeltaFilters(chat)[1:], func(_ context.Context, d log.Delta) (site.Fragment, bool) {
		text, ok := sent.Piece(d)
		return site.Fragment{Part: part(site.ExecutionOf(d)), Text: text}, ok
	})
}

// liveAttributes let a page with the newest executions follow them.
func liveAttributes(v view) templ.Attributes {
	if v.before != 0 {
		return nil
	}
	from := int64(0)
	if v.earlier {
		from = v.executions[0].Position
	}
	return templ.Attributes{"data-live": site.LivePath(path(v)+"/live", v.seq) + "&from=" + strconv.FormatInt(from, 10)}
}

// path is the address of the page.
func path(v view) string { return site.ChatPath(v.chat.ID) + "/terminal" }

// title names the page.
func title(v view) string { return "Terminal - " + site.ChatTitle(v.chat.Title) }
