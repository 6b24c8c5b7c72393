-- Files of the workspace as executions left them, and files that the assistant sent.
CREATE TABLE artifacts(
  id        TEXT PRIMARY KEY,
  chat      TEXT NOT NULL,
  execution TEXT NOT NULL,    -- empty for a file that was sent
  path      TEXT NOT NULL,    -- from the workspace; of a file that was sent, from the session's directory
  size      INTEGER NOT NULL, -- bytes
  sha256    TEXT NOT NULL,    -- hex
  blob      TEXT NOT NULL,    -- in BLOBS; empty when the content was not kept
  caption   TEXT NOT NULL,    -- of a file that was sent
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX artifacts_chat ON artifacts(chat, created);
CREATE INDEX artifacts_execution ON artifacts(execution, path);
CREATE INDEX artifacts_last ON artifacts(last_seq);
