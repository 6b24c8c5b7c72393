-- Runs of schedules, and due times that were skipped.
CREATE TABLE schedule_runs(
  id        TEXT PRIMARY KEY, -- of the message, or of the event that skipped the run
  schedule  TEXT NOT NULL,    -- record
  chat      TEXT NOT NULL,
  due       TEXT NOT NULL,
  first_due TEXT NOT NULL,    -- the first due time that it covers; empty for its own alone
  manual    INTEGER NOT NULL, -- a person or an agent started it
  state     TEXT NOT NULL,    -- queued, running, waiting, completed, failed, aborted, lost, skipped
  reason    TEXT NOT NULL,    -- why it was skipped, was stopped or has no complete answer
  started   TEXT NOT NULL,
  finished  TEXT NOT NULL,    -- empty while it is not over
  max_cost  REAL NOT NULL,    -- in the provider's currency, 0 is no limit
  began     INTEGER NOT NULL, -- sequences of the events at started and finished, 0 for none
  ended     INTEGER NOT NULL,
  position  INTEGER NOT NULL, -- sequence of the event it first appeared in
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT;
CREATE INDEX schedule_runs_schedule ON schedule_runs(schedule, position);
CREATE INDEX schedule_runs_open ON schedule_runs(position) WHERE finished = '';
CREATE INDEX schedule_runs_last ON schedule_runs(last_seq);
