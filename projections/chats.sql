CREATE TABLE chats(
  id                   TEXT PRIMARY KEY,
  title                TEXT NOT NULL,
  ai_engine_session_id TEXT NOT NULL,    -- the chat's own session: the last one bound
  engine_type          TEXT NOT NULL,
  engine               TEXT NOT NULL,
  user                 TEXT NOT NULL,    -- owner; empty for an adopted chat
  agent                TEXT NOT NULL,
  last_active          TEXT NOT NULL,
  preview              TEXT NOT NULL,    -- one line of what was said last, without Markdown, at most 120 runes
  turn                 TEXT NOT NULL,    -- user, assistant
  turn_position        INTEGER NOT NULL, -- sequence of the event since which it is this side's turn, 0 before the first
  description          TEXT NOT NULL,
  archived             INTEGER NOT NULL,
  tags                 TEXT NOT NULL,
  project              TEXT NOT NULL,
  shared               INTEGER NOT NULL, -- all who have access to the project may read it; a delegate as the root of its tree
  reader               TEXT NOT NULL,    -- of the accounts with access to the project: the one that may read it, * for all
  adopted              INTEGER NOT NULL, -- opened in OpenCode's own interface
  titled               INTEGER NOT NULL, -- a person gave it its title, or it is a fork: its title does not follow the session's
  outbox               INTEGER NOT NULL, -- messages submitted and still on their way, held ones not among them
  queue                TEXT NOT NULL,    -- ids of the messages of a person that wait, in order, with a space between them
  holds                INTEGER NOT NULL, -- a stop may hold messages of the queue
  parent               TEXT NOT NULL,    -- of a delegate: the chat that delegated to it
  root                 TEXT NOT NULL,    -- the chat at the root of its tree: its own id if it is no delegate
  depth                INTEGER NOT NULL, -- in the tree, 0 at its root
  directory            TEXT NOT NULL,    -- where a delegate works, absolute; empty for the workspace
  worktree             TEXT NOT NULL,    -- root of a delegate's git worktree, absolute; empty for none, or when it was removed
  branch               TEXT NOT NULL,    -- of the worktree; empty for none, or when it was removed
  kept                 TEXT NOT NULL,    -- why the worktree of a deleted delegate was kept
  awaited              INTEGER NOT NULL, -- of a delegate: the tool call that started it waits for its result
  delegated            TEXT NOT NULL,    -- of a delegate: ids of the delegated messages without a result, with a space between them
  current              TEXT NOT NULL,    -- turn that says its state; empty before its first
  last_ended           TEXT NOT NULL,    -- turn that ended last; empty before the first end
  open                 TEXT NOT NULL,    -- ids of the turns that are not over and not in the queue, with a space between them
  started              INTEGER NOT NULL, -- sequence of the event that sent its last message to OpenCode, 0 for none
  created              TEXT NOT NULL,
  updated              TEXT NOT NULL,
  first_seq            INTEGER NOT NULL,
  last_seq             INTEGER NOT NULL,
  removed              INTEGER NOT NULL
) STRICT;
CREATE INDEX chats_last_active ON chats(last_active DESC, id);
CREATE INDEX chats_user ON chats(user, last_active DESC);
CREATE INDEX chats_reader ON chats(reader);
CREATE INDEX chats_started ON chats(user, started);
CREATE INDEX chats_last ON chats(last_seq);
CREATE INDEX chats_session ON chats(ai_engine_session_id);
CREATE INDEX chats_root ON chats(root);
CREATE INDEX chats_parent ON chats(parent) WHERE parent <> '';
CREATE INDEX chats_delegates ON chats(last_seq) WHERE parent <> '';
CREATE INDEX chats_removed ON chats(last_seq) WHERE removed;
CREATE INDEX chats_worktree ON chats(first_seq) WHERE worktree <> '';
-- The delegates in the tree of a chat that is no delegate.
CREATE TABLE trees(
  id        TEXT PRIMARY KEY, -- of the chat
  delegates TEXT NOT NULL,    -- ids of their chats, in order, with a space between them
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT;
