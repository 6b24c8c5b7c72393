-- Notifications to devices: not shown to clients as records.
CREATE TABLE notifications(
  id           TEXT PRIMARY KEY,
  notification TEXT NOT NULL,    -- the same for all devices
  device       TEXT NOT NULL,    -- record of the collection devices
  subject      TEXT NOT NULL,    -- of the event that queued it: the chat, record or account that it is about
  notice       TEXT NOT NULL,    -- events.Notice in JSON; empty once it has ended
  state        TEXT NOT NULL,    -- queued, sent, failed
  position     INTEGER NOT NULL, -- sequence of the event that queued it
  created      TEXT NOT NULL,
  updated      TEXT NOT NULL,
  first_seq    INTEGER NOT NULL,
  last_seq     INTEGER NOT NULL,
  removed      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX notifications_open ON notifications(position) WHERE state='queued';
CREATE INDEX notifications_notification ON notifications(notification);
