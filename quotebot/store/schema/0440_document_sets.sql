-- What documents are made from besides the quote: branding, locale, and the installation's own templates, style sheet and clauses.

CREATE TABLE document_sets (
  sha256 TEXT PRIMARY KEY CHECK (length(sha256) = 64), -- of the content
  content TEXT NOT NULL,
  stored_at INTEGER NOT NULL
) STRICT;

-- The set that was in force when a version was approved: its document is made from it, also when it is rendered again. Versions that
-- earlier builds approved have no row.
CREATE TABLE document_pins (
  quote_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  sha256 TEXT NOT NULL REFERENCES document_sets (sha256),
  pinned_at INTEGER NOT NULL,
  PRIMARY KEY (quote_id, version)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER document_sets_fixed BEFORE UPDATE ON document_sets
BEGIN SELECT RAISE(ABORT, 'a document set stays as it is'); END;
CREATE TRIGGER document_sets_kept BEFORE DELETE ON document_sets
BEGIN SELECT RAISE(ABORT, 'a document set is kept'); END;
CREATE TRIGGER document_pins_fixed BEFORE UPDATE ON document_pins
BEGIN SELECT RAISE(ABORT, 'a version keeps its document set'); END;
CREATE TRIGGER document_pins_kept BEFORE DELETE ON document_pins
BEGIN SELECT RAISE(ABORT, 'a version keeps its document set'); END;
