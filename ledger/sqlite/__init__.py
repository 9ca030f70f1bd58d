"""The embedded engine: SQLite with group commit, locks and migrations."""
