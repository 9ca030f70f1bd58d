"""The audit: events, the hash chain, its keys, anchors and verification."""
