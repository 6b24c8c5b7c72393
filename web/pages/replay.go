package pages

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/export"
	"pocketcoder/web/pages/conversation"
	"pocketcoder/web/pages/site"
)

// replay serves replays and exports.
type replay struct {
	*site.Site
	exports *export.Exports
	cache   *projections.MomentCache
}

func newReplay(s *site.Site, exports *export.Exports) replay {
	return replay{s, exports, projections.NewMomentCache(s.Log)}
}

// Handle adds the pages to a mux.
func (p replay) Handle(mux *http.ServeMux) {
	mux.Handle("GET /chats/{chat}/replay", p.Page(p.show))
	mux.Handle("GET /chats/{chat}/replay/moments", p.File(p.serveMoments))
	for _, f := range export.Formats {
		mux.Handle("GET /chats/{id}/export/"+f.Name, p.File(p.exports.Chat(f)))
	}
	mux.Handle("GET /executions/{id}/cast", p.File(p.exports.Execution))
}

// moment is a chat as it was after one of its events.
type moment struct {
	chat    timeline.Chat
	steps   steps
	number  int // of the event among those of the chat, from 1
	event   details
	window  timeline.Window
	earlier bool             // there are messages before the window
	entries []timeline.Entry // all in the window, or those that changed since the moment before
	work    timeline.Progress
}

func (m moment) step() projections.MomentEvent { return m.steps[m.number-1] }

func (p replay) show(r *http.Request, caller api.Caller) (templ.Component, error) {
	all, err := p.moments(r, caller, 0)
	if err != nil {
		return nil, err
	}
	return replayPage(all[0]), nil
}

// maxMoments is the largest number of moments in an answer.
const maxMoments = 64

type shownMoment struct {
	Number   int    `json:"number"`
	Sequence uint64 `json:"sequence"`
	Wait     int64  `json:"wait"` // ms since the event before
	HTML     string `json:"html"` // the elements that a page of the moment before lacks; of the first one all
}

// serveMoments answers with a moment and those after it, for replay.js.
func (p replay) serveMoments(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	more, err := site.PositionOf(r, "more")
	if err != nil {
		return err
	}
	all, err := p.moments(r, caller, int(min(more, maxMoments-1)))
	if err != nil {
		return err
	}
	answer := make([]shownMoment, len(all))
	for i, m := range all {
		var b bytes.Buffer
		if err := elements(m, i == 0).Render(r.Context(), &b); err != nil {
			return err
		}
		answer[i] = shownMoment{m.number, m.step().Seq, m.steps.wait(m.number).Milliseconds(), b.String()}
	}
	return api.WriteJSON(w, http.StatusOK, answer)
}

// moments returns the moment that a request asks for, and those after it, at most more.
func (p replay) moments(r *http.Request, caller api.Caller, more int) (all []moment, err error) {
	ctx, chat := r.Context(), r.PathValue("chat")
	if err := p.API.MayView(ctx, caller, "chats", chat); err != nil {
		return nil, err
	}
	give, err := p.API.AcquireQuerySlot(ctx, caller.Key())
	if err != nil {
		return nil, err
	}
	defer give()
	known, err := p.cache.Events(ctx, chat)
	if err != nil {
		return nil, err
	}
	steps := steps(known)
	number, err := steps.find(r)
	if err != nil {
		return nil, err
	}
	before, err := site.PositionOf(r, "before")
	if err != nil {
		return nil, err
	}
	email := export.EmailOf(ctx, p.API.Model)
	more = min(more, len(steps)-number)
	err = p.cache.Show(ctx, chat, steps[number-1].Seq, more, func(db dbx.Builder, last events.Event) error {
		m, err := momentOf(ctx, db, chat, before, all)
		if err != nil {
			return err
		}
		m.steps, m.number = steps, number+len(all)
		m.event, err = p.detailsOf(ctx, db, last, steps, email)
		timeline.FillDeciders(m.entries, email)
		all = append(all, m)
		return err
	})
	return all, err
}

// momentOf reads a moment with its last messages below a position, or the last of all if before is 0. After other
// moments it reads the entries that changed since.
func momentOf(ctx context.Context, db dbx.Builder, chat string, before int64, shown []moment) (m moment, err error) {
	chats, err := timeline.Chats(ctx, db, "", []string{chat})
	if err != nil {
		return m, err
	}
	if len(chats) == 0 {
		return m, projections.ErrNoChat
	}
	m.chat = chats[0]
	after := uint64(0)
	if n := len(shown); n > 0 {
		m.window, m.earlier, after = shown[n-1].window, shown[n-1].earlier, shown[n-1].step().Seq
	} else if m.window, m.earlier, err = timeline.Latest(ctx, db, chat, before, conversation.MaxMessages); err != nil {
		return m, err
	}
	if m.entries, err = timeline.Entries(ctx, db, chat, m.window, after); err != nil {
		return m, err
	}
	m.work, err = timeline.ReadProgress(ctx, db, m.chat)
	return m, err
}

// replayPath is the address of a moment.
func replayPath(chat string, seq uint64) string {
	return site.ChatPath(chat) + "/replay?seq=" + strconv.FormatUint(seq, 10)
}

// earlierPath is the address of the same moment with the messages before its window.
func earlierPath(m moment) templ.SafeURL {
	return templ.SafeURL(replayPath(m.chat.ID, m.step().Seq) + "&before=" + strconv.FormatInt(m.window.From, 10))
}

// exportPath is the address of an export of a moment.
func exportPath(m moment, format string) templ.SafeURL {
	return templ.SafeURL(site.ChatPath(m.chat.ID) + "/export/" + format + "?at=" + strconv.FormatUint(m.step().Seq, 10))
}
