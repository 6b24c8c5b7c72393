-- The turns of chats: one for each message that was submitted, and for work that OpenCode began by itself. A message that
-- joins a running turn ends with it.
CREATE TABLE turns(
  id        TEXT PRIMARY KEY, -- of the message that began it; of its session if OpenCode named no message
  chat      TEXT NOT NULL,
  state     TEXT NOT NULL,    -- queued, running, waiting (for a person), completed, failed, aborted, lost
  ending    TEXT NOT NULL,    -- complete, cut, empty, filtered, lost, stopped, denied, failed; empty while it is not over
  left_in   TEXT NOT NULL,    -- state in which OpenCode left it; its last step can make it a failed one
  answer    TEXT NOT NULL,    -- engine id of its last step so far, the newest message that answers it; empty for none
  stopped   INTEGER NOT NULL, -- a stop was requested before its end
  started   TEXT NOT NULL,    -- when its message was sent first; empty before
  finished  TEXT NOT NULL,    -- empty while it is not over
  began     INTEGER NOT NULL, -- sequences of these events, 0 for none
  ended     INTEGER NOT NULL,
  position  INTEGER NOT NULL, -- sequence of the event that submitted its message
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX turns_chat ON turns(chat, ended);
CREATE INDEX turns_open ON turns(chat) WHERE state IN ('queued', 'running', 'waiting');
CREATE INDEX turns_lost ON turns(last_seq) WHERE ending = 'lost';
