"""Embedded database engine: SQLite with group commit, locks and migrations."""
