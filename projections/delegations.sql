-- Messages that were delegated to other chats: not shown to clients.
CREATE TABLE delegations(
  id              TEXT PRIMARY KEY, -- of the message
  worker          TEXT NOT NULL,    -- chat
  parent          TEXT NOT NULL,    -- chat
  state           TEXT NOT NULL,    -- of the result: completed, failed, aborted, lost; empty while there is none
  prompt          TEXT NOT NULL,    -- message whose turn counts: this one, or the one that resumed its turn
  paused_by       TEXT NOT NULL,    -- request of a used-up budget that stopped the turn
  result          TEXT NOT NULL,    -- id of the event with the result; empty while there is none
  result_seq      INTEGER NOT NULL, -- and its sequence
  text            TEXT NOT NULL,    -- of the result
  received        INTEGER NOT NULL, -- the parent has the result as the output of a tool call
  reported        TEXT NOT NULL,    -- message that carried the result to the parent
  silent_since    TEXT NOT NULL,    -- the last event before the delegate was reported as silent; empty for none
  silent_reported TEXT NOT NULL,    -- message that said so
  position        INTEGER NOT NULL, -- sequence of the event that delegated it
  created         TEXT NOT NULL,
  updated         TEXT NOT NULL,
  first_seq       INTEGER NOT NULL,
  last_seq        INTEGER NOT NULL,
  removed         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX delegations_worker ON delegations(worker, position);
CREATE INDEX delegations_open ON delegations(position) WHERE result = '';
CREATE INDEX delegations_unreported ON delegations(parent) WHERE result <> '' AND reported = '' AND NOT received;
CREATE INDEX delegations_silent ON delegations(parent) WHERE silent_since <> '' AND silent_reported = '';
