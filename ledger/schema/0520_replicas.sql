-- Which of several bot processes on one ledger an epoch belongs to, and its machine. A ledger in a file has one, `main`.

ALTER TABLE epochs ADD COLUMN replica TEXT NOT NULL DEFAULT 'main';
ALTER TABLE epochs ADD COLUMN host TEXT NOT NULL DEFAULT '';
