CREATE TABLE checkpoint(id TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO checkpoint VALUES('log', 0);

CREATE TABLE dead_letters(
  seq     INTEGER PRIMARY KEY, -- of the event in the log
  subject TEXT NOT NULL,
  error   TEXT NOT NULL,
  data    TEXT NOT NULL
) STRICT, WITHOUT ROWID;
