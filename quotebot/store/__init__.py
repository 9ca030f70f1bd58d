"""Persistence of the domain inside an open ledger transaction."""
