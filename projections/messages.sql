CREATE TABLE messages(
  id                    TEXT PRIMARY KEY,
  chat                  TEXT NOT NULL,
  session               TEXT NOT NULL,    -- OpenCode's; empty until the message is sent
  role                  TEXT NOT NULL,    -- user, assistant, system; empty for a removal that came first
  engine_message_status TEXT NOT NULL,    -- assistant: processing, completed, failed, aborted
  user_message_status   TEXT NOT NULL,    -- user: pending, sending, delivered, failed
  ai_engine_message_id  TEXT NOT NULL,
  parent_id             TEXT NOT NULL,    -- engine id of the user message it answers
  error_domain          TEXT NOT NULL,    -- infrastructure, provider
  error_payload         TEXT NOT NULL,    -- JSON {name, data} of OpenCode, {name, message} of ours
  agent                 TEXT NOT NULL,
  chosen_agent          TEXT NOT NULL,    -- record of ai_agents that a person's message is for; empty for OpenCode's own
  provider              TEXT NOT NULL,
  model                 TEXT NOT NULL,
  cost                  REAL NOT NULL,    -- in the provider's currency
  tokens_input          INTEGER NOT NULL,
  tokens_output         INTEGER NOT NULL,
  tokens_reasoning      INTEGER NOT NULL,
  tokens_cache_read     INTEGER NOT NULL,
  tokens_cache_write    INTEGER NOT NULL,
  finish                TEXT NOT NULL,
  submitted             TEXT NOT NULL,    -- JSON list of parts as the person wrote them, shown until OpenCode's are there
  engine_parts          TEXT NOT NULL,    -- JSON list of the part ids it is sent under
  held                  TEXT NOT NULL,    -- why a pending message waits although nothing runs; empty for all others
  held_by               TEXT NOT NULL,    -- id of the budget's ask that decides about it; empty if it waits for a person, after a stop or a loss
  written_seq           INTEGER NOT NULL, -- event that wrote it or a part of it last; the end of a command is none
  notice                TEXT NOT NULL,    -- a sentence about how it was delivered: another model answers than the selected one
  delivery              TEXT NOT NULL,    -- of a person's message: queue, steer
  sender                TEXT NOT NULL,    -- chat whose assistant wrote it; empty for a person
  reports               TEXT NOT NULL,    -- JSON list of the delegated messages whose delegates it reports on
  schedule              TEXT NOT NULL,    -- record of the schedule that submitted it; empty for all others
  origin                TEXT NOT NULL,    -- JSON object: from which channel a person wrote it, and as whom; empty for none
  by_person             INTEGER NOT NULL, -- a person submitted it: a stop of the turn holds it
  copied                INTEGER NOT NULL, -- by a fork: what it cost was spent where it was written
  ending                TEXT NOT NULL,    -- assistant: how a turn ends with it; empty while it is written, and if another step follows
  texts                 INTEGER NOT NULL, -- of its parts, those with more than blanks
  calls                 INTEGER NOT NULL, -- those that are tool calls
  ends                  INTEGER NOT NULL, -- those that say that it is over
  denied                INTEGER NOT NULL, -- a request of a call was denied without a reason, or a question dismissed
  rejected              INTEGER NOT NULL, -- a request of a call was rejected in OpenCode, which does not report the reason
  position              INTEGER NOT NULL, -- sequence of the event it first appeared in
  oc_seq                INTEGER NOT NULL, -- durable sequence of the newest update applied, -1 for none
  created               TEXT NOT NULL,
  updated               TEXT NOT NULL,
  first_seq             INTEGER NOT NULL,
  last_seq              INTEGER NOT NULL,
  removed               INTEGER NOT NULL -- for ever: an older update that comes late does not bring it back
) STRICT;
CREATE INDEX messages_chat ON messages(chat, position, role, removed); -- with what a count reads
CREATE INDEX messages_created ON messages(chat, created, first_seq, id);
CREATE INDEX messages_newest ON messages(created, first_seq, id);
CREATE INDEX messages_first ON messages(first_seq, id);
CREATE INDEX messages_last ON messages(last_seq);
CREATE INDEX messages_engine ON messages(ai_engine_message_id);
CREATE INDEX messages_spent ON messages(created) WHERE role = 'assistant';
CREATE INDEX messages_outbox ON messages(position) WHERE user_message_status IN ('pending', 'sending');

-- Parts of messages, as OpenCode sent them. The parts of a message are put together when it is read.
CREATE TABLE parts(
  id        TEXT PRIMARY KEY, -- OpenCode's
  message   TEXT NOT NULL,    -- messages.id, which may come later
  chat      TEXT NOT NULL,
  oc_seq    INTEGER NOT NULL,
  data      TEXT NOT NULL,    -- JSON
  called    TEXT NOT NULL,    -- of a tool call: hash of its tool and of the arguments that the gate reads, as they were at first
  reused    INTEGER NOT NULL, -- they changed later: the model gave two calls one id
  kind      TEXT NOT NULL,    -- what it says about the end of its message: text, call, end; empty for nothing
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL,
  text      TEXT GENERATED ALWAYS AS (CASE -- what a search finds it by; JSON that nests too deep has none
    WHEN removed OR NOT json_valid(data) THEN NULL
    WHEN data ->> '$.type' IN ('text', 'reasoning') AND NOT coalesce(data ->> '$.synthetic', 0) THEN CAST(data ->> '$.text' AS TEXT)
    WHEN data ->> '$.type' = 'tool' THEN concat_ws(char(10), data ->> '$.state.input.command', data ->> '$.state.input.filePath',
      data ->> '$.state.input.path', data ->> '$.state.input.pattern', data ->> '$.state.input.url', data ->> '$.state.input.query',
      data ->> '$.state.input.description', data ->> '$.state.input.prompt', substr(data ->> '$.state.output', 1, 2000), data ->> '$.state.error')
    WHEN data ->> '$.type' = 'file' THEN CAST(data ->> '$.filename' AS TEXT)
    END) VIRTUAL
) STRICT;
CREATE INDEX parts_message ON parts(message, id);

-- Which of our messages OpenCode knows under which id.
CREATE TABLE engine_ids(
  id        TEXT PRIMARY KEY, -- OpenCode's
  message   TEXT NOT NULL,
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
