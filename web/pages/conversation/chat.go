// Package conversation serves the list of chats, and each chat.
//
// Promises: a chat shows messages, requests and questions in the order of the log. What is pending is never folded
// away or left out. Text that is being written appears as it arrives, and is replaced by the finished message.
//
// It must not decide what an account may see or do: the records of the API and their commands do.
package conversation

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/a-h/templ"
	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/account"
	"pocketcoder/handlers/policy"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
)

// Conversation serves the list of chats, and each chat.
type Conversation struct{ *site.Site }

// Handle adds the pages to a mux.
func (c Conversation) Handle(mux *http.ServeMux) {
	mux.Handle("GET /{$}", openChat(c.Page(c.listChats)))
	mux.Handle("GET /live", c.Live(c.liveChats))
	mux.Handle("GET /help", c.Page(c.showHelp))
	mux.Handle("POST /chats", c.Command(c.startChat))
	mux.Handle("GET /chats/{id}", c.Page(c.showChat))
	mux.Handle("POST /chats/{id}", c.Command(c.changeChat))
	mux.Handle("GET /chats/{id}/live", c.Live(c.liveChat))
	mux.Handle("POST /chats/{id}/messages", c.Command(c.sendMessage))
	mux.Handle("POST /chats/{id}/seen", c.Command(c.markSeen))
	mux.Handle("POST /chats/{id}/queue/{message}", c.Command(c.changeQueue))
	mux.Handle("POST /chats/{id}/abort", c.Command(c.abortTurn))
	mux.Handle("POST /chats/{id}/undo", c.Command(c.undo))
	mux.Handle("GET /chats/{id}/undo", c.Page(c.askUndo))
	mux.Handle("POST /chats/{id}/omit", c.Command(c.omitAndContinue))
	mux.Handle("POST /chats/{id}/fork", c.Command(c.fork))
	mux.Handle("POST /chats/{id}/model", c.Command(c.selectModel))
	mux.Handle("GET /chats/{id}/subagents/{subagent}", c.Page(c.showSubagent))
	mux.Handle("GET /chats/{id}/subagents/{subagent}/live", c.Live(c.liveSubagent))
	mux.Handle("POST /chats/{id}/subagents/{subagent}/stop", c.Command(c.stopSubagent))
	mux.Handle("POST /chats/{id}/stop", c.Command(c.stopDelegate))
}

// continuePrompt is the message that the button Continue sends to the model.
const continuePrompt = "Continue."

// MaxMessages is the number of messages that a page shows at once.
const MaxMessages = 200

// chatView is a chat, or what changed in it, at one moment.
type chatView struct {
	chat      timeline.Chat
	window    timeline.Window
	earlier   bool // there are messages before the window
	entries   []timeline.Entry
	firstNew  int           // the index of the entry before which the account has seen all; 0 for none
	news      timeline.News // what happened since then
	aside     timeline.Sidebar
	work      timeline.Progress
	models    timeline.Models
	agents    []timeline.Agent
	subagents []timeline.Subagent
	delegates []projections.Delegate // of its tree
	saved     []savedRule            // that the person has just made from a request
	project   string                 // its name
	inOne     bool                   // of several projects that the person sees
	readOnly  bool                   // another account shares it with the person
	offerKey  bool                   // the demo model has answered, and the account may store the key of another
	seq       uint64
}

func (c Conversation) showChat(r *http.Request, caller api.Caller) (templ.Component, error) {
	before, err := site.PositionOf(r, "before")
	if err != nil {
		return nil, err
	}
	around, err := site.PositionOf(r, "around")
	if err != nil {
		return nil, err
	}
	var v chatView
	err = c.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, seq uint64) (err error) {
		if v, err = c.chatIn(r.Context(), db, caller, r.PathValue("id")); err != nil {
			return c.goneDelegate(r.Context(), db, caller, r.PathValue("id"), err)
		}
		v.seq = seq
		if around != 0 {
			if before, err = timeline.EndAround(r.Context(), db, v.chat.ID, around, MaxMessages); err != nil {
				return err
			}
		}
		if v.window, v.earlier, err = timeline.Latest(r.Context(), db, v.chat.ID, before, MaxMessages); err != nil {
			return err
		}
		if v.work, err = timeline.ReadProgress(r.Context(), db, v.chat); err != nil {
			return err
		}
		v.entries, err = timeline.Entries(r.Context(), db, v.chat.ID, v.window, 0)
		if v.firstNew = max(0, v.chat.FirstNew(v.entries)); v.firstNew == 0 || err != nil {
			return err
		}
		v.news, err = timeline.NewsOf(r.Context(), db, []string{v.chat.ID}, v.chat.Seen)
		return err
	})
	if err != nil {
		return nil, err
	}
	v.saved, err = c.savedRules(r, caller)
	return chatPage(caller, v), err
}

// goneDelegate returns an error with a link to the parent's list of delegates if the chat is a deleted delegate.
// Otherwise it returns err.
func (c Conversation) goneDelegate(ctx context.Context, db dbx.Builder, caller api.Caller, id string, err error) error {
	if api.ProblemOf(err).Status != http.StatusNotFound {
		return err
	}
	root, rootErr := projections.RootOfDeletedDelegate(ctx, db, id)
	if rootErr != nil || root == "" {
		return errors.Join(err, rootErr)
	}
	if _, rootErr = c.Chat(ctx, db, caller, root); rootErr != nil {
		return rootErr // the caller must not learn that there was a delegate
	}
	return site.Gone{Problem: api.Problem{Status: http.StatusNotFound, Message: "This delegate was deleted. If " +
		"files or commits of its git worktree were kept, the chat that it worked for lists them."},
		Path: site.ChatPath(root) + "#delegates", Link: "The delegates of that chat"}
}

// savedRule is a rule, and when it ends: "" for never.
type savedRule struct{ text, ends string }

// maxSaved is how many rules the page of a chat names; a request rarely needs more than three.
const maxSaved = 20

// savedRules are the rules that the query names.
func (c Conversation) savedRules(r *http.Request, caller api.Caller) (all []savedRule, err error) {
	names := r.URL.Query()["saved"]
	for _, name := range names[:min(len(names), maxSaved)] {
		id, _ := strings.CutPrefix(name, "tool_permissions/")
		rule, err := c.API.Find(r.Context(), caller, "tool_permissions", id)
		if problem := api.ProblemOf(err); err != nil && problem.Status == http.StatusNotFound {
			continue // it was deleted since
		} else if err != nil {
			return nil, err
		}
		all = append(all, savedRule{policy.Rule{Permission: rule.Text("tool"), Pattern: rule.Text("pattern"),
			Action: policy.Action(rule.Text("action"))}.String(), rule.Text("expires_at")})
	}
	return all, nil
}

// chatIn returns a chat that the account may view, without its entries.
func (c Conversation) chatIn(ctx context.Context, db dbx.Builder, caller api.Caller, id string) (v chatView,
	err error) {
	if v.chat, err = c.Chat(ctx, db, caller, id); err != nil {
		return v, err
	}
	if v.aside, err = timeline.ReadSidebar(ctx, db, v.chat); err != nil {
		return v, err
	}
	if v.models, err = timeline.ModelsOf(ctx, db, id); err != nil {
		return v, err
	}
	chats, _ := c.API.Catalogue.Get("chats")
	may, err := query.Allowed(ctx, db, c.API.Catalogue, chats, id, chats.Update, caller.Request())
	if err != nil {
		return v, err
	}
	all, err := c.projectsOf(ctx, db, caller)
	if err != nil {
		return v, err
	}
	name := all.name(v.chat.Project)
	v.project, v.inOne = cmp.Or(name, v.chat.Project), name != "" && len(all) > 1
	v.readOnly = !may && caller.Is(account.User)
	v.offerKey = v.models.OnlyDemo() && caller.Is("admin") && v.aside.Last.ID != "" && !site.Running(v.chat)
	if v.agents, err = timeline.Agents(ctx, db); err != nil {
		return v, err
	}
	if v.subagents, err = timeline.Subagents(ctx, db, id); err != nil {
		return v, err
	}
	if v.delegates, err = projections.DelegatesIn(ctx, db, id); err != nil {
		return v, err
	}
	return v, c.CountPending(ctx, db)
}

// sendMessage submits a message, or carries out the command that a person wrote instead of one. A message that is sent
// again stays a message: another client may have submitted a text that is a command here.
func (c Conversation) sendMessage(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	chat, text := r.PathValue("id"), site.Field(r, "text")
	files, err := filesIn(r)
	if err != nil {
		return "", err
	}
	if run, argument := runnerOf(text); run != nil && len(files) == 0 && !r.PostForm.Has("again") {
		return run(c, r, caller, argument)
	}
	return site.ChatPath(chat), c.send(r, caller, chat, r.PostFormValue("id"), text, files)
}

func (c Conversation) abortTurn(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	chat := r.PathValue("id")
	return site.ChatPath(chat), c.Chats.Abort(r, caller, chat)
}

// changeChat renames, tags, archives, unarchives or shares a chat, or lets another agent answer its next messages.
func (c Conversation) changeChat(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	fields := map[string]any{}
	if r.PostForm.Has("title") {
		fields["title"] = site.Field(r, "title")
	}
	if r.PostForm.Has("tags") {
		fields["tags"] = strings.Join(tagsOf(site.Field(r, "tags")), ",")
	}
	if r.PostForm.Has("agent") {
		fields["agent"] = r.PostFormValue("agent")
	}
	for _, name := range []string{"archived", "shared"} {
		if r.PostForm.Has(name) {
			fields[name] = r.PostFormValue(name) == "true"
		}
	}
	return c.update(r, caller, fields)
}

func (c Conversation) undo(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return c.revert(r, caller, r.PostFormValue("message"), r.PostFormValue("changed"))
}

// omitAndContinue leaves out the files that the provider refused, and lets the model answer without them.
func (c Conversation) omitAndContinue(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	id, message := r.PathValue("id"), r.PostFormValue("id")
	if _, err := c.Chats.Omit(r, caller, id, message); err != nil {
		return "", err
	}
	return site.ChatPath(id), c.send(r, caller, id, message, continuePrompt, nil)
}

func (c Conversation) fork(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	return c.forkBefore(r, caller, r.PostFormValue("message"))
}

// liveAttributes let a page with the end of a chat follow it. Earlier messages are shown as they were.
func liveAttributes(v chatView) templ.Attributes {
	if v.window.Before != 0 {
		return nil
	}
	path := site.LivePath(site.ChatPath(v.chat.ID)+"/live", v.seq)
	attributes := templ.Attributes{"data-live": path + "&from=" + strconv.FormatInt(v.window.From, 10)}
	if v.chat.Opened {
		attributes["data-seen"] = strconv.FormatInt(v.chat.Seen, 10)
	}
	return attributes
}
