-- OpenCode's child sessions, as a person sees them.
CREATE TABLE subagents(
  id                  TEXT PRIMARY KEY,
  subagent_id         TEXT NOT NULL,    -- its session
  delegating_agent_id TEXT NOT NULL,    -- the session that started it
  chat                TEXT NOT NULL,
  agent               TEXT NOT NULL,
  title               TEXT NOT NULL,
  status              TEXT NOT NULL,    -- running, completed, failed, aborted
  tmux_window_id      INTEGER NOT NULL,
  started             TEXT NOT NULL,
  finished            TEXT NOT NULL,    -- empty while it runs
  position            INTEGER NOT NULL, -- sequence of the event it first appeared in
  created             TEXT NOT NULL,
  updated             TEXT NOT NULL,
  first_seq           INTEGER NOT NULL,
  last_seq            INTEGER NOT NULL,
  removed             INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX subagents_chat ON subagents(chat, position);
CREATE INDEX subagents_last ON subagents(last_seq);
