-- An absence may begin later than it is told of, and may have a reason. What was told last counts, whenever it begins.

ALTER TABLE delegations ADD COLUMN asked_at INTEGER; -- NULL in rows of before: they began when they were told of
ALTER TABLE delegations ADD COLUMN reason TEXT;
