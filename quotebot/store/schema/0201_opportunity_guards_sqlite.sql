-- What SQLite itself refuses: a quote that is moved to another opportunity behind its records' back.

CREATE TRIGGER quote_opportunities_fixed BEFORE UPDATE ON quote_opportunities
BEGIN SELECT RAISE(ABORT, 'a quote keeps its opportunity'); END;
CREATE TRIGGER quote_opportunities_kept BEFORE DELETE ON quote_opportunities
BEGIN SELECT RAISE(ABORT, 'a quote keeps its opportunity'); END;
