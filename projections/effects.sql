-- What people asked OpenCode to do with a chat besides answering: not shown to clients.
CREATE TABLE effects(
  id        TEXT PRIMARY KEY, -- of the event that asked for it
  chat      TEXT NOT NULL,
  kind      TEXT NOT NULL,    -- abort, revert, fork, omit
  session   TEXT NOT NULL,    -- abort: OpenCode's id of a subagent's session; empty for the chat's own
  message   TEXT NOT NULL,    -- revert, fork: OpenCode's id of the message; empty for the last revert, or the whole chat
  overwrite INTEGER NOT NULL, -- revert: it keeps no file that was changed since
  kept      TEXT NOT NULL,    -- revert: absolute paths of the files that it kept as they were, a JSON list; empty for none
  copies    TEXT NOT NULL,    -- revert: directory with the earlier versions of kept files; empty for none
  into_chat TEXT NOT NULL,    -- fork: the new chat
  files     TEXT NOT NULL,    -- omit: a JSON list of {message, part, name}, with OpenCode's ids; empty for none
  state     TEXT NOT NULL,    -- open, done, failed
  reason    TEXT NOT NULL,    -- why it failed
  position  INTEGER NOT NULL, -- sequence of the event that asked for it
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX effects_open ON effects(position) WHERE state = 'open';
