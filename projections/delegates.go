package projections

import (
	"context"
	"fmt"
	"slices"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// Delegate is a delegate as a list shows it.
type Delegate struct {
	ID      string `db:"id" json:"id"` // chat
	Parent  string `db:"parent" json:"parent"`
	Root    string `db:"root" json:"root"`
	Depth   int64  `db:"depth" json:"depth"`
	Title   string `db:"title" json:"title"`
	Agent   string `db:"agent" json:"agent"`     // its name; empty for OpenCode's own
	Session string `db:"session" json:"session"` // OpenCode's
	// queued, running, waiting (for a person), completed, failed, aborted, lost; deleted, if its worktree or its branch
	// is still there
	State   string  `db:"state" json:"state"`
	Message string  `db:"message" json:"message"` // the newest delegated message
	Result  string  `db:"result" json:"result"`   // id of its result; empty while there is none
	Silent  string  `db:"silent" json:"silent"`   // time of the last event before a long silence; empty for none
	Pending int64   `db:"pending" json:"pending"` // requests and questions that wait for a person
	Cost    float64 `db:"cost" json:"cost" about:"In US dollars."`
	Tokens  int64   `db:"tokens" json:"tokens"`
	Line    string  `db:"line" json:"line"` // preview of the newest message
	Created string  `db:"created" json:"created"`
	Active  string  `db:"active" json:"active"` // time of the last activity

	Directory string `db:"directory" json:"directory"` // where it works; empty for the workspace
	Branch    string `db:"branch" json:"branch"`       // of its git worktree; empty for none
	Worktree  string `db:"worktree" json:"worktree"`   // root of the worktree; empty for none
	Kept      string `db:"kept" json:"kept"`           // why the worktree was kept when the delegate was deleted
}

const DelegateDeleted = "deleted"

// Remains says what is left of the git worktree of a deleted delegate. It is empty for any other delegate.
func (w Delegate) Remains() string {
	switch {
	case w.State != DelegateDeleted:
		return ""
	case w.Kept != "":
		return fmt.Sprintf("The git worktree %s with the branch %s is kept: %s", w.Worktree, w.Branch, w.Kept)
	case w.Worktree != "":
		return fmt.Sprintf("The git worktree %s is still there.", w.Worktree)
	default:
		return fmt.Sprintf("The git worktree was removed. Its branch %s is kept for its commits.", w.Branch)
	}
}

// Runs reports whether a delegate can be stopped.
func (w Delegate) Runs() bool { return !turnstate.Ended(w.State) }

// IsBelow reports whether a chat is the parent or the root of a delegate.
func (w Delegate) IsBelow(chat string) bool { return w.Parent == chat || w.Root == chat }

const delegateColumns = `c.id, c.parent, c.root, c.depth, c.title, c.ai_engine_session_id AS session, c.preview AS line, c.created, c.last_active AS active, c.directory, c.branch, c.worktree, c.kept,
		coalesce((SELECT fields->>'$.name' FROM config WHERE collection='ai_agents' AND record=c.agent), '') AS agent,
		CASE WHEN c.removed THEN 'deleted' WHEN u.state IN ('running', 'waiting') THEN u.state ELSE coalesce(nullif(d.state, ''), own.state, u.state, '') END AS state,
		coalesce(d.id, '') AS message, coalesce(d.result, '') AS result,
		CASE WHEN d.result='' THEN d.silent_since ELSE '' END AS silent,
		(SELECT count(*) FROM waiting_requests p WHERE p.chat=c.id) +
		(SELECT count(*) FROM waiting_questions q WHERE q.chat=c.id) AS pending,
		coalesce((SELECT sum(cost) FROM usage WHERE chat=c.id AND NOT removed), 0.0) AS cost,
		coalesce((SELECT sum(tokens_input+tokens_output+tokens_reasoning) FROM usage WHERE chat=c.id AND NOT removed), 0) AS tokens`

const fromDelegates = `
	FROM chats c LEFT JOIN turns u ON u.id=c.current
	LEFT JOIN delegations d ON d.id=(SELECT id FROM delegations WHERE worker=c.id ORDER BY position DESC LIMIT 1)
	LEFT JOIN turns own ON own.id=d.prompt
	WHERE c.parent<>'' AND (NOT c.removed OR c.branch<>'') AND `

const selectDelegates = "SELECT " + delegateColumns + fromDelegates

// Delegates lists the newest delegates of the tree of a chat, in the order in which they were started. Without a chat
// it lists those of all chats, the newest first.
func (m *Model) Delegates(ctx context.Context, chat string, limit int) ([]Delegate, error) {
	where := "c.root=(SELECT root FROM chats WHERE id={:chat})"
	if chat == "" {
		where = "1"
	}
	all, err := store.List[Delegate](ctx, m.Model, "delegates of "+chat,
		selectDelegates+where+" ORDER BY c.first_seq DESC LIMIT {:limit}", dbx.Params{"chat": chat, "limit": limit})
	if chat != "" {
		slices.Reverse(all)
	}
	return all, err
}

// DelegatesOfUser lists the delegates in the chats of an account that it sees, or in all chats if user is empty, the
// newest first.
func (m *Model) DelegatesOfUser(ctx context.Context, user string, limit int) ([]Delegate, error) {
	return store.List[Delegate](ctx, m.Model, "delegates of "+user,
		selectDelegates+"({:user}='' OR c.user={:user} AND c.project IN ("+ProjectsOf("{:user}", false)+")) ORDER BY c.first_seq DESC LIMIT {:limit}",
		dbx.Params{"user": user, "limit": limit})
}

// DelegatesIn is Delegates without a limit, with the database connection of a page.
func DelegatesIn(ctx context.Context, db dbx.Builder, chat string) (all []Delegate, err error) {
	err = store.All(db.NewQuery(selectDelegates+"c.root=(SELECT root FROM chats WHERE id={:chat}) ORDER BY c.first_seq").
		WithContext(ctx).Bind(dbx.Params{"chat": chat}), &all)
	return all, err
}

// RootOfDeletedDelegate returns the chat for which a deleted delegate worked, "" if there is no such delegate.
func RootOfDeletedDelegate(ctx context.Context, db dbx.Builder, id string) (root string, err error) {
	var all []struct {
		Root string `db:"root"`
	}
	err = store.All(db.NewQuery("SELECT root FROM chats WHERE id={:id} AND removed AND parent<>''").WithContext(ctx).
		Bind(dbx.Params{"id": id}), &all)
	if len(all) == 1 {
		root = all[0].Root
	}
	return root, err
}

// DelegateDetail is a delegate with the result of its newest delegated message.
type DelegateDetail struct {
	Delegate
	Text    string `db:"text" json:"text"` // empty while there is no result
	Outcome string `db:"outcome" json:"-"` // completed, failed, aborted, lost; empty while there is no result
}

// Delegate returns a delegate, and whether it exists.
func (m *Model) Delegate(ctx context.Context, id string) (DelegateDetail, bool, error) {
	return store.First[DelegateDetail](ctx, m.Model, "delegate "+id,
		"SELECT coalesce(d.text, '') AS text, coalesce(d.state, '') AS outcome, "+delegateColumns+fromDelegates+"c.id={:id}",
		dbx.Params{"id": id})
}

// Letter is a message between the chats of a tree.
type Letter struct {
	ID      string `db:"id" json:"id"`
	Sender  string `db:"sender" json:"sender"` // chat; empty for a report on several delegates
	From    string `db:"sender_title" json:"from"`
	Text    string `db:"text" json:"text"`
	State   string `db:"state" json:"state"` // queued, delivered, seen (answered), failed
	Created string `db:"created" json:"created"`
}

// Inbox lists the newest messages that other chats of the tree sent to a chat, the newest first.
func (m *Model) Inbox(ctx context.Context, chat string, limit int) ([]Letter, error) {
	return store.List[Letter](ctx, m.Model, "inbox of "+chat, `SELECT m.id, m.sender, m.created,
			coalesce((SELECT title FROM chats WHERE id=m.sender), '') AS sender_title,
			coalesce((SELECT group_concat(value->>'$.text', char(10)) FROM json_each(m.submitted)), '') AS text,
			CASE WHEN m.user_message_status IN ('pending', 'sending') THEN 'queued'
				WHEN m.user_message_status='failed' THEN 'failed'
				WHEN EXISTS (SELECT 1 FROM messages a WHERE a.chat=m.chat AND a.session=m.session AND a.role='assistant'
					AND a.parent_id>=m.ai_engine_message_id) THEN 'seen'
				ELSE 'delivered' END AS state
		FROM messages m WHERE m.chat={:chat} AND NOT m.removed AND (m.sender<>'' OR m.reports NOT IN ('', '[]'))
		ORDER BY m.position DESC LIMIT {:limit}`, dbx.Params{"chat": chat, "limit": limit})
}
