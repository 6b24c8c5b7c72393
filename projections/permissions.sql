CREATE TABLE permissions(
  id                      TEXT PRIMARY KEY,
  ai_engine_permission_id TEXT NOT NULL,    -- OpenCode's; the record's own of an ask over the API
  session_id              TEXT NOT NULL,    -- of the session that asked, a subagent's too
  chat                    TEXT NOT NULL,
  permission              TEXT NOT NULL,    -- bash, edit, …
  patterns                TEXT NOT NULL,    -- JSON list
  metadata                TEXT NOT NULL,    -- JSON object
  always                  TEXT NOT NULL,    -- JSON list
  message_id              TEXT NOT NULL,
  call_id                 TEXT NOT NULL,
  status                  TEXT NOT NULL,    -- draft, authorized, denied, expired
  interrupted             INTEGER NOT NULL, -- OpenCode restarted and forgot it
  replied                 INTEGER NOT NULL, -- OpenCode has its answer, or nobody waits for one
  reason                  TEXT NOT NULL,
  referred                INTEGER NOT NULL, -- the policy left it to a person
  referred_reason         TEXT NOT NULL,
  rule                    TEXT NOT NULL,    -- that decided when the policy did, or says to ask
  rule_id                 TEXT NOT NULL,    -- collection/record; empty for one that no record holds
  rule_version            INTEGER NOT NULL, -- sequence of the event that made it so
  cwd                     TEXT NOT NULL,    -- bash: where it may run, or would
  edited                  TEXT NOT NULL,    -- bash: what runs instead of the command that was asked for
  expires                 TEXT NOT NULL,    -- the approval allows nothing after that
  decided_by              TEXT NOT NULL,    -- actor
  source                  TEXT NOT NULL,    -- opencode, api
  message                 TEXT NOT NULL,    -- the ask in one readable line
  challenge               TEXT NOT NULL,
  approved_by             TEXT NOT NULL,    -- user who authorized it
  approved_at             TEXT NOT NULL,
  device                  TEXT NOT NULL,    -- with which a person decided
  request                 TEXT NOT NULL,    -- SHA-256 of what is asked for: see events.PermissionAsk
  files                   TEXT NOT NULL,    -- JSON list: of the request, with the content that a person is shown
  files_hash              TEXT NOT NULL,    -- SHA-256 of the files: see events.HashFiles
  grant_used              INTEGER NOT NULL, -- the approval of this interrupted ask answered the same request asked again
  applied                 INTEGER NOT NULL, -- keep: the sandbox has carried out the decision
  failure                 TEXT NOT NULL,    -- keep: why the sandbox could not
  asked_seq               INTEGER NOT NULL,
  decided_seq             INTEGER NOT NULL, -- 0 until it is decided
  created                 TEXT NOT NULL,
  updated                 TEXT NOT NULL,
  first_seq               INTEGER NOT NULL,
  last_seq                INTEGER NOT NULL,
  removed                 INTEGER NOT NULL
) STRICT;
CREATE INDEX permissions_chat ON permissions(chat, asked_seq, removed); -- with what a count reads
CREATE INDEX permissions_newest ON permissions(created, first_seq, id);
CREATE INDEX permissions_first ON permissions(first_seq, id);
CREATE INDEX permissions_last ON permissions(last_seq);
CREATE INDEX permissions_denied ON permissions(chat, message_id) WHERE status = 'denied' AND reason = ''; -- they end turns
CREATE INDEX permissions_draft ON permissions(asked_seq) WHERE status = 'draft';
CREATE INDEX permissions_kept ON permissions(decided_seq) WHERE permission = 'keep' AND decided_seq > 0 AND NOT applied AND failure = '';
CREATE INDEX permissions_unreplied ON permissions(decided_seq) WHERE status IN ('authorized', 'denied') AND NOT replied;

-- The requests that wait for a person: the policy has left them to a person, or OpenCode restarted and forgot them.
-- The policy has not decided the other drafts yet. Permission.WaitsForPerson says the same of one row.
CREATE VIEW waiting_requests AS SELECT * FROM permissions WHERE status = 'draft' AND NOT removed AND (referred OR interrupted);
