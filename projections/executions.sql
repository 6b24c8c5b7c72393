CREATE TABLE executions(
  id           TEXT PRIMARY KEY,
  permission   TEXT NOT NULL,    -- permissions.id; empty for a refused one and for a person's own shell
  command      TEXT NOT NULL,    -- commands.id; empty for a person's own shell
  original     TEXT NOT NULL,    -- as the model gave it, when a person has edited it
  chat         TEXT NOT NULL,
  session_id   TEXT NOT NULL,
  call_id      TEXT NOT NULL,
  message      TEXT NOT NULL,    -- OpenCode's id of the message with the call; empty for a person's own shell
  cwd          TEXT NOT NULL,
  status       TEXT NOT NULL,    -- executing, completed, failed, refused, or the reason why it did not end by itself
  exit_code    INTEGER NOT NULL,
  signal       TEXT NOT NULL,
  reason       TEXT NOT NULL,
  error        TEXT NOT NULL,
  left_behind  TEXT NOT NULL,    -- events.LeftProcesses.Sentence
  outputs      TEXT NOT NULL,    -- JSON {stdout, stderr}
  stdout_bytes INTEGER NOT NULL,
  stderr_bytes INTEGER NOT NULL,
  duration_ms  INTEGER NOT NULL,
  source       TEXT NOT NULL,
  pool         TEXT NOT NULL,
  worker       TEXT NOT NULL,    -- that took it; empty when none did
  isolation    TEXT NOT NULL,    -- bwrap, landlock, container or none; likewise
  detached     INTEGER NOT NULL, -- nobody waits for it
  terminal     INTEGER NOT NULL, -- a person's own shell
  private      INTEGER NOT NULL, -- its output is not recorded
  changed      INTEGER NOT NULL, -- files that were created or changed while it ran
  started      TEXT NOT NULL,
  finished     TEXT NOT NULL,
  position     INTEGER NOT NULL, -- sequence of the event that began it
  created      TEXT NOT NULL,
  updated      TEXT NOT NULL,
  first_seq    INTEGER NOT NULL,
  last_seq     INTEGER NOT NULL,
  removed      INTEGER NOT NULL
) STRICT;
CREATE INDEX executions_chat ON executions(chat, position, removed); -- with what a count reads
CREATE INDEX executions_position ON executions(position);
CREATE INDEX executions_newest ON executions(created, first_seq, id);
CREATE INDEX executions_first ON executions(first_seq, id);
CREATE INDEX executions_last ON executions(last_seq);
CREATE INDEX executions_command ON executions(command, chat);
CREATE INDEX executions_message ON executions(message) WHERE message <> '';
CREATE INDEX executions_running ON executions(position) WHERE status = 'executing';

-- Every command that was ever asked to run.
CREATE TABLE commands(
  id        TEXT PRIMARY KEY,
  hash      TEXT NOT NULL,    -- SHA-256 of the command, hex
  command   TEXT NOT NULL,
  uses      INTEGER NOT NULL, -- how often it was handed to a sandbox
  created   TEXT NOT NULL,
  updated   TEXT NOT NULL,
  first_seq INTEGER NOT NULL,
  last_seq  INTEGER NOT NULL,
  removed   INTEGER NOT NULL
) STRICT;
CREATE INDEX commands_newest ON commands(created, first_seq, id);
CREATE INDEX commands_first ON commands(first_seq, id);
CREATE INDEX commands_last ON commands(last_seq);
CREATE UNIQUE INDEX commands_hash ON commands(hash);
