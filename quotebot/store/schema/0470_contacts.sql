-- The e-mail address and the phone number in a person's profile, for the documents of their quotes. Empty until Slack is asked again,
-- within the hour; without the scope users:read.email Slack gives no address.

ALTER TABLE people ADD COLUMN email TEXT NOT NULL DEFAULT '';
ALTER TABLE people ADD COLUMN phone TEXT NOT NULL DEFAULT '';

-- How the requester could be reached when a version was approved: its document says so, also when it is rendered again. Versions that
-- earlier builds approved, and those of people with neither, have no row.
CREATE TABLE document_contacts (
  quote_id TEXT NOT NULL,
  version INTEGER NOT NULL,
  email TEXT NOT NULL,
  phone TEXT NOT NULL,
  PRIMARY KEY (quote_id, version)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER document_contacts_fixed BEFORE UPDATE ON document_contacts
BEGIN SELECT RAISE(ABORT, 'a version keeps its contact'); END;
CREATE TRIGGER document_contacts_kept BEFORE DELETE ON document_contacts
BEGIN SELECT RAISE(ABORT, 'a version keeps its contact'); END;
