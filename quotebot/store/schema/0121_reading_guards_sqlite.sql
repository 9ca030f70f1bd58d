-- A message is answered once: what was answered is not answered again, by whomever.

CREATE TRIGGER readings_answered_once BEFORE UPDATE ON readings
WHEN OLD.answered_by IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'this message was answered'); END;
