-- Up to where accounts have seen chats. A chat without a row was seen up to first_seq of the account's oldest row: what was there
-- when the account looked at its first chat is not new.
CREATE TABLE seen_positions(
  id        TEXT PRIMARY KEY,
  user      TEXT NOT NULL,
  chat      TEXT NOT NULL,
  seq       INTEGER NOT NULL, -- of the last event that the account has seen
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX seen_positions_user ON seen_positions(user, chat);
CREATE INDEX seen_positions_last ON seen_positions(last_seq);
