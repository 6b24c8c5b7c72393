-- Indexes of all texts of chats. FTS5 reads the texts from the rows of other tables, so the indexes hold no text of their own.
-- How FTS5 stores an index depends on how its changes were committed; what it finds does not. A new file gets its indexes at the end.

-- What a page shows of parts: what was said, what tools were called with, and the beginning of what they returned.
CREATE VIEW part_texts AS SELECT rowid AS id, text FROM parts WHERE text IS NOT NULL;
CREATE VIRTUAL TABLE search_parts USING fts5(text, content='part_texts', content_rowid='id', columnsize=0, tokenize="unicode61 tokenchars '_'");
CREATE TRIGGER search_parts_insert AFTER INSERT ON parts WHEN new.text IS NOT NULL BEGIN
  INSERT INTO search_parts(rowid, text) VALUES(new.rowid, new.text);
END;
CREATE TRIGGER search_parts_update AFTER UPDATE OF data, removed ON parts WHEN new.text IS NOT old.text BEGIN
  INSERT INTO search_parts(search_parts, rowid, text) SELECT 'delete', old.rowid, old.text WHERE old.text IS NOT NULL;
  INSERT INTO search_parts(rowid, text) SELECT new.rowid, new.text WHERE new.text IS NOT NULL;
END;

CREATE VIRTUAL TABLE search_chats USING fts5(title, description, tags, content='chats', content_rowid='rowid', columnsize=0, tokenize="unicode61 tokenchars '_'");
CREATE TRIGGER search_chats_insert AFTER INSERT ON chats BEGIN
  INSERT INTO search_chats(rowid, title, description, tags) VALUES(new.rowid, new.title, new.description, new.tags);
END;
CREATE TRIGGER search_chats_update AFTER UPDATE OF title, description, tags ON chats
WHEN new.title IS NOT old.title OR new.description IS NOT old.description OR new.tags IS NOT old.tags BEGIN
  INSERT INTO search_chats(search_chats, rowid, title, description, tags) VALUES('delete', old.rowid, old.title, old.description, old.tags);
  INSERT INTO search_chats(rowid, title, description, tags) VALUES(new.rowid, new.title, new.description, new.tags);
END;

-- What people wrote when they decided: the command that ran instead, and why they denied. Most requests have neither.
CREATE VIEW decision_texts AS SELECT rowid AS id, edited, reason FROM permissions WHERE edited <> '' OR reason <> '';
CREATE VIRTUAL TABLE search_decisions USING fts5(edited, reason, content='decision_texts', content_rowid='id', columnsize=0, tokenize="unicode61 tokenchars '_'");
CREATE TRIGGER search_decisions_insert AFTER INSERT ON permissions WHEN new.edited <> '' OR new.reason <> '' BEGIN
  INSERT INTO search_decisions(rowid, edited, reason) VALUES(new.rowid, new.edited, new.reason);
END;
CREATE TRIGGER search_decisions_update AFTER UPDATE OF edited, reason ON permissions WHEN new.edited IS NOT old.edited OR new.reason IS NOT old.reason BEGIN
  INSERT INTO search_decisions(search_decisions, rowid, edited, reason)
    SELECT 'delete', old.rowid, old.edited, old.reason WHERE old.edited <> '' OR old.reason <> '';
  INSERT INTO search_decisions(rowid, edited, reason) SELECT new.rowid, new.edited, new.reason WHERE new.edited <> '' OR new.reason <> '';
END;
