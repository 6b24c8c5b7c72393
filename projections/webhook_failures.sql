-- Events that a webhook target did not accept. A row is removed when the event is delivered after all.
CREATE TABLE webhook_failures(
  id        TEXT PRIMARY KEY,
  target    TEXT NOT NULL,    -- record of the collection webhook_targets
  event     INTEGER NOT NULL, -- its sequence
  type      TEXT NOT NULL,
  attempts  INTEGER NOT NULL,
  reason    TEXT NOT NULL,
  position  INTEGER NOT NULL, -- sequence of the event that recorded the failure
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX webhook_failures_position ON webhook_failures(position) WHERE NOT removed;
CREATE INDEX webhook_failures_last ON webhook_failures(last_seq);
