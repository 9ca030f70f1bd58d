-- The business hours of a request for approval, which its reminders and escalations count until it ends. A request without a row
-- counts every hour.

CREATE TABLE approval_calendars (
  approval_id TEXT PRIMARY KEY REFERENCES approvals (approval_id),
  calendar TEXT NOT NULL -- JSON, with the time zone of people whose own is not known
) STRICT, WITHOUT ROWID;

CREATE TRIGGER approval_calendars_fixed BEFORE UPDATE ON approval_calendars
BEGIN SELECT RAISE(ABORT, 'a request keeps its calendar'); END;
CREATE TRIGGER approval_calendars_kept BEFORE DELETE ON approval_calendars
BEGIN SELECT RAISE(ABORT, 'a request keeps its calendar'); END;
