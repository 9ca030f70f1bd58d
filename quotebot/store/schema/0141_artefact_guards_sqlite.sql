-- What SQLite itself refuses: a document that becomes another file, or is forgotten.

CREATE TRIGGER artefacts_fixed BEFORE UPDATE ON artefacts
BEGIN SELECT RAISE(ABORT, 'a rendered document stays as it is'); END;
CREATE TRIGGER artefacts_kept BEFORE DELETE ON artefacts
BEGIN SELECT RAISE(ABORT, 'a rendered document is kept'); END;
