-- The model may ask several questions together: one row each.
CREATE TABLE questions(
  id                    TEXT PRIMARY KEY,
  ai_engine_question_id TEXT NOT NULL,
  idx                   INTEGER NOT NULL, -- which of those asked together, from 0
  session_id            TEXT NOT NULL,
  message_id            TEXT NOT NULL,
  call_id               TEXT NOT NULL,
  chat                  TEXT NOT NULL,
  question              TEXT NOT NULL,
  header                TEXT NOT NULL,
  choices               TEXT NOT NULL,    -- JSON list of labels
  descriptions          TEXT NOT NULL,    -- JSON list, one for each choice
  multiple              INTEGER NOT NULL, -- several choices may be taken
  custom                INTEGER NOT NULL, -- free text is an answer too
  reply                 TEXT NOT NULL,    -- JSON list of labels or free text
  status                TEXT NOT NULL,    -- asked, replied, rejected, expired
  interrupted           INTEGER NOT NULL, -- OpenCode restarted and forgot it
  reason                TEXT NOT NULL,    -- why it expired
  replied_by            TEXT NOT NULL,    -- actor
  request               TEXT NOT NULL,    -- SHA-256 of those asked together: see events.QuestionAsk
  engine_replied        INTEGER NOT NULL, -- OpenCode has its answer, or is owed none
  own                   INTEGER NOT NULL, -- asked by the tool ask_person, whose call waits for the answer
  position              INTEGER NOT NULL, -- sequence of the event that asked
  created               TEXT NOT NULL,
  updated               TEXT NOT NULL,
  first_seq             INTEGER NOT NULL,
  last_seq              INTEGER NOT NULL,
  removed               INTEGER NOT NULL
) STRICT;
CREATE INDEX questions_chat ON questions(chat, position, idx);
CREATE INDEX questions_last ON questions(last_seq);
CREATE INDEX questions_asked ON questions(position, idx) WHERE status = 'asked';
CREATE INDEX questions_open ON questions(position, idx) WHERE NOT engine_replied AND status <> 'expired';
CREATE INDEX questions_request ON questions(chat, request, position);
CREATE INDEX questions_together ON questions(ai_engine_question_id, idx);

-- The questions that wait for a person. Question.WaitsForPerson says the same of one row.
CREATE VIEW waiting_questions AS SELECT * FROM questions WHERE status = 'asked' AND NOT removed;
