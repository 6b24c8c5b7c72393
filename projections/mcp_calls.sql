-- Calls of the tools of MCP servers: not shown to clients as records.
CREATE TABLE mcp_calls(
  id          TEXT PRIMARY KEY,
  server      TEXT NOT NULL,    -- record of the collection mcp_servers
  tool        TEXT NOT NULL,    -- as the server names it
  chat        TEXT NOT NULL,
  state       TEXT NOT NULL,    -- running, completed, failed
  result      TEXT NOT NULL,    -- the beginning of its text, or why there is no result
  duration_ms INTEGER NOT NULL,
  created     TEXT NOT NULL,
  updated     TEXT NOT NULL,
  first_seq   INTEGER NOT NULL,
  last_seq    INTEGER NOT NULL,
  removed     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX mcp_calls_server ON mcp_calls(server, first_seq);
