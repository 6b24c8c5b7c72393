-- Messages that leave, or have left, through a channel.
CREATE TABLE channel_messages(
  id        TEXT PRIMARY KEY,
  chat      TEXT NOT NULL,
  channel   TEXT NOT NULL,    -- record of the collection channels
  place     TEXT NOT NULL,    -- the platform's id of the conversation
  type      TEXT NOT NULL,    -- answer, error, permission, question, notice
  text      TEXT NOT NULL,
  about     TEXT NOT NULL,    -- the assistant's message, request or question; empty for a notice
  whole     INTEGER NOT NULL, -- permission: the text shows all that an approval would allow
  state     TEXT NOT NULL,    -- queued, sending, sent, failed, unknown
  receipt   TEXT NOT NULL,    -- the platform's id of the message
  reason    TEXT NOT NULL,    -- why it failed
  attempts  INTEGER NOT NULL,
  position  INTEGER NOT NULL, -- sequence of the event that queued it
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX channel_messages_open ON channel_messages(position) WHERE state IN ('queued', 'sending');
CREATE INDEX channel_messages_about ON channel_messages(chat, about);
