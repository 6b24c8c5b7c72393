package pages

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

// maxExecutions is the number of executions that a page shows at once.
const maxExecutions = 30

// terminalView is the executions of a chat, or those that changed, at one moment.
type terminalView struct {
	chat       timeline.Chat
	executions []execution
	before     int64 // position below which they are, 0 for the newest
	earlier    bool  // there are executions before them
	port       string
	seq        uint64
}

func (p Pages) showTerminal(r *http.Request, caller api.Caller) (templ.Component, error) {
	before, err := site.PositionOf(r, "before")
	if err != nil {
		return nil, err
	}
	port, err := portOf(r)
	if err != nil {
		return nil, err
	}
	v, err := p.readTerminal(r.Context(), caller, r.PathValue("id"), func(db dbx.Builder, chat string) (all []execution,
		earlier bool, err error) {
		runs, earlier, err := timeline.LatestRuns(r.Context(), db, chat, before, maxExecutions)
		return executionsOf(runs), earlier, err
	})
	if err != nil {
		return nil, err
	}
	v.before, v.port = before, port
	p.readOutputs(r.Context(), v.executions)
	return terminalPage(v), nil
}

// readTerminal returns a chat that the account may view, with executions.
func (p Pages) readTerminal(ctx context.Context, caller api.Caller, chat string,
	executions func(dbx.Builder, string) ([]execution, bool, error)) (v terminalView, err error) {
	err = p.API.SlowView(ctx, caller.Key(), func(db dbx.Builder, seq uint64) (err error) {
		v.seq = seq
		if v.chat, err = p.Chat(ctx, db, caller, chat); err != nil {
			return err
		}
		if err := p.CountPending(ctx, db); err != nil {
			return err
		}
		v.executions, v.earlier, err = executions(db, chat)
		return err
	})
	return v, err
}

// liveTerminal follows the newest executions of a chat, and what they print.
func (p Pages) liveTerminal(r *http.Request, caller api.Caller) (site.Updates, []site.Source, error) {
	from, err := site.PositionOf(r, "from")
	if err != nil {
		return nil, nil, err
	}
	chat := r.PathValue("id")
	since, err := p.FragmentsSince(r.Context(), caller, chat, timeline.RunningSince)
	if err != nil {
		return nil, nil, err
	}
	var head site.Changed
	update := func(ctx context.Context, after uint64) ([]byte, uint64, error) {
		v, err := p.readTerminal(ctx, caller, chat, func(db dbx.Builder, chat string) ([]execution, bool, error) {
			runs, err := timeline.ChangedRuns(ctx, db, chat, from, after)
			return executionsOf(runs), false, err
		})
		if err != nil {
			return nil, 0, err
		}
		b, err := head.Render(ctx, site.RequestsLink(""))
		if err != nil {
			return nil, 0, err
		}
		elements := bytes.NewBuffer(b)
		p.readOutputs(ctx, v.executions)
		for _, x := range v.executions {
			if err := executionArticle(x).Render(ctx, elements); err != nil {
				return nil, 0, err
			}
		}
		return elements.Bytes(), v.seq, nil
	}
	return update, []site.Source{p.printed(chat, since)}, nil
}

// printed is the source of what running executions of a chat print. Shells draw on a screen, which no text shows.
func (p Pages) printed(chat string, since time.Time) site.Source {
	sent := site.LiveOutput{}
	return p.Writing(since, events.ChatDeltaFilters(chat)[1:], func(_ context.Context, d log.Delta) (site.Fragment, bool) {
		text, ok := sent.Piece(d)
		return site.Fragment{Part: outputPart(site.ExecutionOf(d)), Text: text}, ok
	})
}

// liveAttributes let a page with the newest executions follow them.
func liveAttributes(v terminalView) templ.Attributes {
	if v.before != 0 {
		return nil
	}
	from := int64(0)
	if v.earlier {
		from = v.executions[0].Position
	}
	return templ.Attributes{
		"data-live": site.LivePath(terminalPath(v)+"/live", v.seq) + "&from=" + strconv.FormatInt(from, 10)}
}

// terminalPath is the address of the page.
func terminalPath(v terminalView) string { return site.ChatPath(v.chat.ID) + "/terminal" }
