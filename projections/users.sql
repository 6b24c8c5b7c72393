-- Accounts. Passwords and sessions are elsewhere.
CREATE TABLE users(
  id        TEXT PRIMARY KEY,
  email     TEXT NOT NULL,
  name      TEXT NOT NULL,
  avatar    TEXT NOT NULL,
  role      TEXT NOT NULL,    -- admin, agent, user
  verified  INTEGER NOT NULL,
  disabled  INTEGER NOT NULL,
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX users_email ON users(email);
CREATE INDEX users_last ON users(last_seq);
