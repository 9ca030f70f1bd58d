-- What a person's message about a request shows, so that each loss and each return of the authority to decide redraws it.

ALTER TABLE approval_copies ADD COLUMN lost INTEGER NOT NULL DEFAULT 0; -- 1: it was last drawn without figures
ALTER TABLE approval_copies ADD COLUMN drawings INTEGER NOT NULL DEFAULT 0; -- after the first one
