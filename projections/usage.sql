-- What was spent, by chat and model. Every assistant message counts once, with its latest figures, and a removed one stays spent.
-- What a fork copied was spent by the chat it was copied from. It is kept with the messages: to compute it for all chats takes long.
CREATE TABLE usage(
  id                 TEXT PRIMARY KEY, -- chat.provider.model
  chat               TEXT NOT NULL,
  provider           TEXT NOT NULL,
  model              TEXT NOT NULL,
  messages           INTEGER NOT NULL,
  cost               REAL NOT NULL,    -- in the provider's currency
  tokens_input       INTEGER NOT NULL,
  tokens_output      INTEGER NOT NULL,
  tokens_reasoning   INTEGER NOT NULL,
  tokens_cache_read  INTEGER NOT NULL,
  tokens_cache_write INTEGER NOT NULL,
  created            TEXT NOT NULL,
  updated            TEXT NOT NULL,
  first_seq          INTEGER NOT NULL,
  last_seq           INTEGER NOT NULL,
  removed            INTEGER NOT NULL  -- its messages turned out to be of another model
) STRICT;
CREATE INDEX usage_chat ON usage(chat, provider, model);
CREATE INDEX usage_created ON usage(created, first_seq, id);
CREATE INDEX usage_first ON usage(first_seq, id);
