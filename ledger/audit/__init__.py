"""Audit of the ledger: events, the hash chain, its keys, anchors and verification."""
