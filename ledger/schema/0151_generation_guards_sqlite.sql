-- What SQLite itself refuses: a generation that is rewritten or forgotten.

CREATE TRIGGER generations_fixed BEFORE UPDATE ON generations BEGIN SELECT RAISE(ABORT, 'a generation stays as it began'); END;
CREATE TRIGGER generations_kept BEFORE DELETE ON generations BEGIN SELECT RAISE(ABORT, 'a generation is kept'); END;
