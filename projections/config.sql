-- The newest form of every record that people and agents keep: agents, prompts, rules, keys, … One table holds all
-- collections; their fields are known to those who read and write them.
CREATE TABLE config(
  id         TEXT PRIMARY KEY, -- collection/record
  collection TEXT NOT NULL,
  record     TEXT NOT NULL,
  fields     TEXT NOT NULL,    -- JSON object, without insignificant space
  created    TEXT NOT NULL,
  updated    TEXT NOT NULL,
  first_seq  INTEGER NOT NULL,
  last_seq   INTEGER NOT NULL,
  removed    INTEGER NOT NULL  -- until it is saved again, as a new one
) STRICT;
CREATE UNIQUE INDEX config_record ON config(collection, record);
CREATE INDEX config_last ON config(last_seq);
CREATE INDEX config_members ON config(fields ->> '$.user') WHERE collection = 'project_members';
