-- Rendered documents as rows. A SQLite ledger keeps them in a folder, so these statements replace none of it.

-- name: put_document
-- Always a change, also where the document is there: its commit is durable only if the first one is, and a sweep sees that it is new.
INSERT INTO artefact_blobs (sha256, bytes, stored_at)
VALUES (:sha256, :bytes, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ON CONFLICT (sha256) DO UPDATE SET bytes = excluded.bytes, stored_at = excluded.stored_at;

-- name: document
SELECT bytes FROM artefact_blobs WHERE sha256 = :sha256;

-- name: documents_there
SELECT sha256 FROM artefact_blobs ORDER BY sha256;

-- name: remove_document
-- Unless it was stored a short time ago, by whichever process: then the row that names it may still come.
DELETE FROM artefact_blobs
WHERE sha256 = :sha256 AND stored_at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - :grace;

-- name: documents_verified
-- The last of the next documents, and the first of them whose content no longer has its checksum.
SELECT max(page.sha256) AS last, min(page.sha256) FILTER (WHERE encode(sha256(page.bytes), 'hex') <> page.sha256) AS damaged
FROM (SELECT sha256, bytes FROM artefact_blobs WHERE sha256 > :after ORDER BY sha256 LIMIT :limit) AS page;
