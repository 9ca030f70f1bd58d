-- Error code of a dead letter, as its external service or our own code names it. With class and category it is the letter's cause.
-- A row from before has none.

ALTER TABLE effects ADD COLUMN code TEXT;
ALTER TABLE operations ADD COLUMN code TEXT;
