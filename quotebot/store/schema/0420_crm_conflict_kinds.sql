-- The update that writes the field of a difference: the status of a record, or the amount or the stage of its opportunity.

ALTER TABLE crm_conflicts ADD COLUMN what TEXT NOT NULL DEFAULT 'status' CHECK (what IN ('status', 'amount', 'stage'));
