"""Loads and saves the domain inside an open ledger transaction."""
