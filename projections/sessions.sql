-- OpenCode's sessions: not shown to clients. A session without a parent is a chat's own, now or earlier.
CREATE TABLE sessions(
  id            TEXT PRIMARY KEY, -- OpenCode's
  chat          TEXT NOT NULL,
  parent        TEXT NOT NULL,
  root          TEXT NOT NULL,
  engine        TEXT NOT NULL,
  directory     TEXT NOT NULL,
  agent         TEXT NOT NULL,
  title         TEXT NOT NULL,
  chosen_agent  TEXT NOT NULL,    -- record of ai_agents that its last message is for; empty for OpenCode's own
  chosen_name   TEXT NOT NULL,    -- and its name then
  opened        INTEGER NOT NULL, -- Unix ms; 0 when it is not known
  status        TEXT NOT NULL,    -- idle, busy, retry: OpenCode's last word
  retry         TEXT NOT NULL,    -- JSON {attempt, message, next} while its status is retry; empty for none
  seq           INTEGER NOT NULL, -- newest durable sequence in the log, -1 for none
  oc_seq        INTEGER NOT NULL, -- durable sequence of what directory, agent and title say
  processing    TEXT NOT NULL,    -- sorted ids of its assistant messages that have not ended
  awaiting      TEXT NOT NULL,    -- engine id of the message we sent that nothing has answered
  unanswered    TEXT NOT NULL,    -- engine id of the newest user message that nothing has answered, whoever sent it
  waiting       TEXT NOT NULL,    -- sorted ids of permissions and questions, of subagents too, that wait for a person
  outcome       TEXT NOT NULL,    -- how its last turn ended, as far as is known: completed, failed, aborted, lost
  runs          INTEGER NOT NULL, -- OpenCode works in it, or waits there for a person
  newest        TEXT NOT NULL,    -- engine id of its newest message of the assistant
  created       TEXT NOT NULL,
  updated       TEXT NOT NULL,
  first_seq     INTEGER NOT NULL,
  last_seq      INTEGER NOT NULL,
  removed       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_running ON sessions(id) WHERE runs;
